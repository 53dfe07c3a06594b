#pragma once
// The parameters of ResNet-50 (He et al. 2015, arXiv:1512.03385) as torchvision registers them: what the gradients of
// a common network look like. 161 tensors, 25,557,032 elements. Standard library only.

#include <array>
#include <cstddef>
#include <vector>

namespace ddprun::bench {

/// Elements of each, in registration order.
inline std::vector<std::size_t> resnet50() {
    std::vector<std::size_t> counts;
    const auto convolution = [&](std::size_t in, std::size_t out, std::size_t kernel) {
        counts.push_back(in * out * kernel * kernel);
        counts.insert(counts.end(), 2, out);  // the batch normalisation behind it
    };
    convolution(3, 64, 7);
    std::size_t in = 64;
    constexpr std::array<std::size_t, 4> kBlocks{3, 4, 6, 3};
    for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
        const std::size_t width = std::size_t{64} << stage;
        for (std::size_t block = 0; block < kBlocks[stage]; ++block) {
            convolution(in, width, 1);
            convolution(width, width, 3);
            convolution(width, 4 * width, 1);
            if (block == 0) convolution(in, 4 * width, 1);
            in = 4 * width;
        }
    }
    counts.push_back(in * 1000);
    counts.push_back(1000);
    return counts;
}

}  // namespace ddprun::bench
