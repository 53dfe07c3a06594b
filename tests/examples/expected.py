#!/usr/bin/env python3
"""Prints what an example has to print on a number of ranks, computed in one process without the library.

usage: expected.py NAME RANKS"""
import heapq
import math
import sys


def hello_all_reduce(ranks):
    for rank in range(ranks):
        yield (
            f"rank {rank}: {ranks} ranks, sum of ranks {sum(range(ranks))}"
            f", of their squares {sum(r * r for r in range(ranks))}"
        )


def accumulate_and_join(ranks):
    counts = [4 * (25 + 5 * rank) for rank in range(ranks)]
    slope = offset = 0.0
    gradients = [0.0, 0.0]
    losses = []
    for batch in range(max(counts)):
        for rank in range(ranks):
            if batch < counts[rank]:
                x = (7 * batch + 3 * rank) % 16 / 16
                error = slope * x + offset - (3 * x + 1)
                losses.append(error * error)
                gradients[0] += error * x / 4 / ranks
                gradients[1] += error / 4 / ranks
        if batch % 4 == 3:
            slope -= 0.2 * gradients[0]
            offset -= 0.2 * gradients[1]
            gradients = [0.0, 0.0]
    for rank, count in enumerate(counts):
        yield (
            f"rank {rank}: {count} batches, {count // 4} updates, y = {slope:.6f} x + {offset:.6f}"
            f", mean loss {sum(losses) / len(losses):.6f} of {len(losses)} samples"
        )


def comm_hook(ranks):
    count, batch = 256, 8

    def train(exchange):
        weights = [0.0] * count
        for step in range(100):
            loss = 0
            gradients = [[0.0] * count for _ in range(ranks)]
            for rank in range(ranks):
                for i in range(batch):
                    sample = (step * batch + i) * ranks + rank
                    inputs = [math.sin(1.7 * sample * (w % 31 + 1) + w * w) for w in range(count)]
                    error = sum((weights[w] - 1 / (1 + w)) * inputs[w] for w in range(count))
                    loss += error * error / batch / ranks
                    for w in range(count):
                        gradients[rank][w] += error * inputs[w] / batch
            mean = exchange(gradients)
            weights = [weight - 0.002 * gradient for weight, gradient in zip(weights, mean)]
        return loss

    def whole(gradients):
        return [sum(values) / ranks for values in zip(*gradients)]

    rests = [[0.0] * count for _ in range(ranks)]

    def largest(gradients):
        mean = [0.0] * count
        for rest, own in zip(rests, gradients):
            rest[:] = [a + b for a, b in zip(rest, own)]
            for w in heapq.nlargest(count // 16, range(count), key=lambda w: abs(rest[w])):
                mean[w] += rest[w] / ranks
                rest[w] = 0.0
        return mean

    yield f"all gradients: loss {train(whole):.6f}, {count * 8} bytes per step"
    yield f"the largest:   loss {train(largest):.6f}, {count // 16 * 12} bytes per step"


def mpi_style(ranks):
    numbers = sorted(i * 619 % 1000 for i in range(25 * ranks))
    for rank in range(ranks):
        same = range(rank % 2, ranks, 2)
        product = math.prod(other + 1 for other in same)
        part = "".join(f" {number}" for number in numbers if number * ranks // 1000 == rank)
        yield (
            f"rank {rank}: ring {ranks * (ranks + 1) // 2}, rank {same.index(rank)} of {len(same)} of its parity"
            f" with product {product}, sorted{part}"
        )


def linear_losses(samples, count, steps, inputs, target, update):
    """Trains the weights of a linear layer on all samples, and yields the line of every tenth step."""
    weights = [0.0] * count
    rows = [([inputs(s, i) for i in range(count)], target(s)) for s in range(samples)]
    for step in range(1, steps + 1):
        errors = [sum(w * x for w, x in zip(weights, row)) - wanted for row, wanted in rows]
        gradients = [sum(e * row[i] for e, (row, _) in zip(errors, rows)) / samples for i in range(count)]
        weights = update(weights, gradients)
        if step % 10 == 0:
            yield f"step {step}: loss {sum(e * e for e in errors) / samples:.8f}"


def grid(ranks):
    yield from linear_losses(
        32, 12, 50,
        lambda s, i: math.sin(0.7 * s * (i % 4 + 1) + i),
        lambda s: math.cos(0.7 * s) + math.sin(1.4 * s) / 2,
        lambda weights, gradients: [w - 0.05 * g for w, g in zip(weights, gradients)],
    )  # fmt: skip
    columns = 2 if ranks % 2 == 0 else 1
    for rank in range(ranks):
        yield f"rank {rank}: row {rank // columns} of {ranks // columns}, column {rank % columns} of {columns}"


def zero1(_ranks):
    count = 1001
    mean, square, step = [0.0] * count, [0.0] * count, 0

    def adam(weights, gradients):
        nonlocal mean, square, step
        step += 1
        mean = [0.9 * m + 0.1 * 2 * g for m, g in zip(mean, gradients)]
        square = [0.999 * s + 0.001 * 4 * g * g for s, g in zip(square, gradients)]
        correction1, correction2 = 1 - 0.9**step, 1 - 0.999**step
        return [
            w - 0.001 * m / correction1 / (math.sqrt(s / correction2) + 1e-8) for w, m, s in zip(weights, mean, square)
        ]

    yield from linear_losses(
        64, count, 50,
        lambda s, i: math.sin(0.37 * s * (i % 7 + 1) + i),
        lambda s: math.cos(0.37 * s) + math.sin(0.74 * s) / 2,
        adam,
    )  # fmt: skip


def sharded(_ranks):
    layers, width, samples = 3, 12, 32
    inputs = [[math.sin(0.3 * s * (j % 4 + 1) + j) for j in range(width)] for s in range(samples)]
    targets = [[math.cos(0.3 * s + j) / 2 for j in range(width)] for s in range(samples)]
    weights = [0.5 * math.sin(1.3 * k + layer) for layer in range(layers) for k in range(width * width)]
    mean, square = [0.0] * len(weights), [0.0] * len(weights)
    for step in range(1, 51):
        loss, gradients = 0.0, [0.0] * len(weights)
        for x, y in zip(inputs, targets):
            values = [x]
            for layer in range(layers):
                rows = range(layer * width * width, (layer + 1) * width * width, width)
                values.append([math.tanh(sum(weights[row + j] * values[layer][j] for j in range(width))) for row in rows])
            slopes = [out - wanted for out, wanted in zip(values[layers], y)]
            loss += sum(slope * slope for slope in slopes) / samples
            slopes = [2 * slope / samples for slope in slopes]
            for layer in reversed(range(layers)):
                below = [0.0] * width
                for i in range(width):
                    slope = slopes[i] * (1 - values[layer + 1][i] ** 2)
                    row = layer * width * width + i * width
                    for j in range(width):
                        gradients[row + j] += slope * values[layer][j]
                        below[j] += slope * weights[row + j]
                slopes = below
        norm = math.sqrt(sum(g * g for g in gradients))
        gradients = [g * min(1, 1 / (norm + 1e-6)) for g in gradients]
        mean = [m + 0.1 * (g - m) for m, g in zip(mean, gradients)]
        square = [s + 0.001 * (g * g - s) for s, g in zip(square, gradients)]
        correction1, correction2 = 1 - 0.9**step, 1 - 0.999**step
        weights = [
            w - 0.02 * (0.01 * w + m / correction1 / (math.sqrt(s / correction2) + 1e-8))
            for w, m, s in zip(weights, mean, square)
        ]
        if step % 10 == 0:
            yield f"step {step}: loss {loss:.8f}, norm {norm:.6f}"


print("\n".join(globals()[sys.argv[1]](int(sys.argv[2]))))
