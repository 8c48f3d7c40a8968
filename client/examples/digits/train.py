"""Trains the digit classifier and writes the files of data/ anew.

Needs NumPy and scikit-learn (only for its copy of the data set):
    python3 -m venv venv && venv/bin/pip install numpy scikit-learn
    venv/bin/python train.py

A layer's weights are stored as the kernel linear takes them, a row for each of its outputs.
"""

import pathlib

import numpy as np
from sklearn.datasets import load_digits

SEED = 20240917
HELD_OUT = 450  # of 1797
HIDDEN = 48
CLASSES = 10
EPOCHS = 400
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-3
PIXEL_MAX = 16.0


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x):
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    inner = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def train(images, labels, rng):
    """Adam on the cross entropy of the whole training set; returns the two layers' weights and biases."""
    pixels = images.shape[1]
    params = [
        rng.normal(0, np.sqrt(2 / pixels), (pixels, HIDDEN)),
        np.zeros(HIDDEN),
        rng.normal(0, np.sqrt(1 / HIDDEN), (HIDDEN, CLASSES)),
        np.zeros(CLASSES),
    ]
    first = [np.zeros_like(p) for p in params]
    second = [np.zeros_like(p) for p in params]
    targets = np.eye(CLASSES)[labels]
    for step in range(1, EPOCHS + 1):
        w1, b1, w2, b2 = params
        before = images @ w1 + b1
        hidden = gelu(before)
        d_logits = (softmax(hidden @ w2 + b2) - targets) / len(images)
        d_before = (d_logits @ w2.T) * gelu_slope(before)
        gradients = [
            images.T @ d_before + WEIGHT_DECAY * w1,
            d_before.sum(axis=0),
            hidden.T @ d_logits + WEIGHT_DECAY * w2,
            d_logits.sum(axis=0),
        ]
        for p, g, m, v in zip(params, gradients, first, second):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            p -= LEARNING_RATE * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return params


def main():
    rng = np.random.default_rng(SEED)
    data = load_digits()
    images = data.data / PIXEL_MAX
    order = rng.permutation(len(images))
    held_out, training = order[:HELD_OUT], order[HELD_OUT:]
    w1, bias_1, w2, bias_2 = train(images[training], data.target[training], rng)
    arrays = {
        "images": images[held_out],
        "labels": data.target[held_out],
        "weights_1": w1.T,
        "bias_1": bias_1,
        "weights_2": w2.T,
        "bias_2": bias_2,
    }
    arrays = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()}

    # From the float32 files' values, in float64: the truth that the service is compared with.
    x, labels, *network = (array.astype(np.float64) for array in arrays.values())
    weights_1, bias_1, weights_2, bias_2 = network
    hidden = gelu(x @ weights_1.T + bias_1)
    probabilities = softmax(hidden @ weights_2.T + bias_2)
    arrays["probabilities"] = probabilities.astype(np.float32)
    accuracy = np.mean(probabilities.argmax(axis=1) == labels)
    print(f"{len(training)} images to train on, {HELD_OUT} held out, accuracy {accuracy:.4f}")

    folder = pathlib.Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


if __name__ == "__main__":
    main()
