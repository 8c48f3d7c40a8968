// Random expressions and their meaning, written a second time: as a tree that is walked over whole
// tensors in long double, with NumPy's shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/op.h"

namespace warpcall::testing {

struct Tree {
  std::string name;  // "x0", "3.5", an operator or a function
  std::vector<Tree> children;
};

// A tensor of values; its shape ends with the columns.
struct Values {
  Dims dims;
  std::vector<long double> values;
  bool constant = false;  // does not depend on an input
};

class RandomExpression {
 public:
  struct Options {
    int depth = 4;
    int inputs = 3;
    bool reductions = true;
    bool dropout = false;  // Evaluate does not know it
  };

  RandomExpression(uint64_t seed, const Options& options);

  const Tree& tree() const { return tree_; }
  // With parentheses and spaces at random, where they do not matter.
  const std::string& text() const { return text_; }
  int inputs() const { return inputs_; }  // inputs named

 private:
  Tree Grow(int depth);
  Tree Leaf();
  std::string Write(const Tree& tree, int above);
  // Draws a number from 0 to `most`.
  int Draw(int most) { return static_cast<int>(random_() % static_cast<uint64_t>(most + 1)); }

  const Options options_;
  std::mt19937_64 random_;
  int inputs_ = 0;
  Tree tree_;
  std::string text_;
};

// Returns the tree's value before it is broadcast to the shape of all inputs.
Values Evaluate(const Tree& tree, const std::vector<Values>& inputs);

// Element `index` of the shape `dims`, which `values` can be broadcast to.
long double BroadcastAt(const Values& values, const Dims& dims, int64_t index);

}  // namespace warpcall::testing
