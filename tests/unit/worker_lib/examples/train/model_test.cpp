#include <algorithm>
#include <cmath>

#include "tests/catch.hpp"
#include "worker_lib/examples/train/model.hpp"

using train::Batch;
using train::Model;
using train::ModelShape;

namespace {

constexpr ModelShape kTiny{.context = 3, .embedding = 4, .hidden1 = 5, .hidden2 = 6};

Batch tiny_batch() { return {.contexts = {1, 2, 1, 255, 0, 2, 1, 1, 7}, .targets = {2, 255, 9}}; }

template <typename T>
struct Gradients {
    explicit Gradients(Model<T>& model) {
        for (const auto parameter : model.parameters()) memory.emplace_back(parameter.size(), T(99));
        for (auto& gradient : memory) views.emplace_back(gradient);
    }
    std::vector<std::vector<T>> memory;
    std::vector<std::span<T>> views;
};

/// The output layer starts at zero, which would hide errors in the layers below.
void shake(Model<double>& model) {
    int k = 0;
    for (const auto parameter : model.parameters()) {
        for (double& value : parameter) value += 0.3 * std::sin(++k);
    }
}

std::size_t parameter_count(Model<float>& model) {
    std::size_t count = 0;
    for (const auto parameter : model.parameters()) count += parameter.size();
    return count;
}

}  // namespace

TEST_CASE("gradients agree with finite differences of the loss", "[train]") {
    Model<double> model(kTiny, 7);
    shake(model);
    const Batch batch = tiny_batch();
    Gradients<double> gradients(model);
    model.forward(batch);
    model.backward(batch, 1.5, gradients.views, [](std::size_t) {});

    constexpr double kStep = 1e-5;  // error of the central difference: about kStep² and 1e-16 / kStep
    const auto parameters = model.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        CAPTURE(Model<double>::kNames[i]);
        double worst = 0;
        for (std::size_t j = 0; j < parameters[i].size(); ++j) {
            double& value = parameters[i][j];
            const double before = value;
            value = before + kStep;
            const double above = model.forward(batch);
            value = before - kStep;
            const double below = model.forward(batch);
            value = before;
            const double expected = (above - below) / (2 * kStep) / 1.5;
            worst = std::max(worst, std::abs(gradients.views[i][j] - expected));
        }
        CHECK(worst < 1e-9);
    }
}

TEST_CASE("each gradient is announced once, when it is complete, the last layer first", "[train]") {
    Model<double> model(kTiny, 7);
    shake(model);
    const Batch batch = tiny_batch();
    Gradients<double> gradients(model);
    std::vector<std::size_t> order;
    std::vector<std::vector<double>> when_ready(gradients.memory.size());
    model.forward(batch);
    model.backward(batch, 3, gradients.views, [&](std::size_t i) {
        order.push_back(i);
        when_ready[i] = gradients.memory[i];
    });
    CHECK(order == std::vector<std::size_t>{6, 5, 4, 3, 2, 1, 0});
    CHECK(when_ready == gradients.memory);
}

TEST_CASE("a rank without samples has gradients of zero", "[train]") {
    Model<double> model(kTiny, 7);
    shake(model);
    Gradients<double> gradients(model);
    CHECK(model.forward({}) == 0);
    model.backward({}, 1, gradients.views, [](std::size_t) {});
    for (const auto& gradient : gradients.memory) CHECK(gradient == std::vector<double>(gradient.size()));
}

TEST_CASE("a fresh model finds all bytes equally likely", "[train]") {
    Model<float> model(kTiny, 1);
    const Batch batch = tiny_batch();
    CHECK(model.forward(batch) / static_cast<double>(batch.size()) == Approx(std::log(256.0)));
    CHECK(parameter_count(model) == 256 * 4 + 12 * 5 + 5 + 5 * 6 + 6 + 6 * 256 + 256);
}

TEST_CASE("the seed decides the initial parameters", "[train]") {
    Model<float> a(kTiny, 1);
    Model<float> b(kTiny, 1);
    Model<float> c(kTiny, 2);
    const auto weights = [](Model<float>& model) {
        const auto first_layer = model.parameters()[1];
        return std::vector<float>(first_layer.begin(), first_layer.end());
    };
    CHECK(weights(a) == weights(b));
    CHECK(weights(a) != weights(c));
}

TEST_CASE("the default model has four million parameters", "[train]") {
    Model<float> model(ModelShape{}, 1);
    CHECK(parameter_count(model) == Approx(4e6).epsilon(0.05));
}

TEST_CASE("a new model has the same numbers, however its parameters are divided", "[train]") {
    Model<float> model(kTiny, 7);
    const train::Layers<float> layers(kTiny);
    const auto whole = model.parameters();
    for (std::size_t i = 0; i < whole.size(); ++i) {
        CAPTURE(Model<float>::kNames[i]);
        REQUIRE(layers.count(i) == whole[i].size());
        std::vector<float> parts(whole[i].size(), 99.0f);
        for (std::size_t begin = 0; begin < parts.size(); begin += 7)
            layers.initialise(i, begin, 7,
                              std::span(parts).subspan(begin, std::min<std::size_t>(7, parts.size() - begin)));
        CHECK(std::ranges::equal(parts, whole[i]));
    }
    CHECK(layers.dimensions(1) == std::vector<std::size_t>{12, 5});
    CHECK(layers.dimensions(6) == std::vector<std::size_t>{256});
}
