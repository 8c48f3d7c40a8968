#include "kernels/softmax/softmax.h"

namespace warpcall {

std::vector<Implementation> SoftmaxCudaRows() {
  return {
      softmax::SubwarpPerRowRow(),     softmax::WarpPerRowRow(),      softmax::BlockPerRowRow(),
      softmax::ClusterPerRowRow(),     softmax::TwoPassRow(),         softmax::RingPerColumnsRow(),
      softmax::ClusterPerColumnsRow(), softmax::ThreadPerColumnRow(), softmax::TritonSoftmaxRow(),
      softmax::CompiledSoftmaxRow(),   softmax::CudnnSoftmaxRow(),    softmax::ChainOfKernelsRow()};
}

}  // namespace warpcall
