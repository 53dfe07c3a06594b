// The gradient reducer on device memory against the one on host memory, over the same gradients of the same ranks
// (scripts/gpu-check, checks 15, 16, 18 and 23), and what a step costs (check 19).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "ddp/join.hpp"
#include "ddp/reducer.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/gpu/report_line.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

constexpr int kSteps = 3;

std::vector<ParamSpec> params_of(const std::vector<std::size_t>& counts) {
    std::vector<ParamSpec> params;
    for (std::size_t i = 0; i < counts.size(); ++i) params.push_back({fmt::format("p{}", i), counts[i], DType::F32, 1});
    return params;
}

/// Gradients of a small model: sizes that are odd, large, and many.
std::vector<ParamSpec> small_model() {
    std::vector<std::size_t> counts{1, 7, 1000, 65'536, 100'003};
    counts.resize(40, 513);
    return params_of(counts);
}

/// Returns the gradient of one rank: between 0.5 and 1.5.
std::vector<float> gradient(int rank, int step, std::size_t param, std::size_t count) {
    std::vector<float> values(count);
    std::uint32_t state = 1 + static_cast<std::uint32_t>(rank) * 7919 + static_cast<std::uint32_t>(step) * 104'729 +
                          static_cast<std::uint32_t>(param) * 31;
    for (float& value : values) {
        state = state * 1'664'525 + 1'013'904'223;
        value = 0.5f + static_cast<float>(state >> 8) / static_cast<float>(1 << 24);
    }
    return values;
}

/// One way to use a reducer.
struct Way {
    const char* name;
    ReducerOptions options = {};
    bool accumulates = false;  ///< two backwards without sync before each one with it
    bool binds = false;        ///< gradients outside the buckets
    double tolerance = 1e-6;   ///< relative
};

BucketLimits limits_of(std::size_t bytes) { return {.bucket_cap_bytes = bytes, .first_bucket_cap_bytes = bytes}; }

std::vector<Way> all_ways() {
    const auto hook = [](DType type, bool feedback) {
        return ReducerOptions{.hook = compress(type, {.error_feedback = feedback})};
    };
    return {{.name = "defaults"},
            {.name = "one bucket", .options = {.limits = limits_of(std::size_t{1} << 30)}},
            {.name = "a bucket for each gradient", .options = {.limits = limits_of(1)}},
            {.name = "rebuilt plan", .options = {.rebuild = true}},
            {.name = "divided before", .options = {.average = Average::Pre}},
            {.name = "divided after", .options = {.average = Average::Post}},
            {.name = "no_sync", .accumulates = true},
            {.name = "bound gradients", .binds = true},
            {.name = "bf16", .options = hook(DType::BF16, false), .tolerance = 0.01},
            {.name = "f16", .options = hook(DType::F16, false), .tolerance = 0.002},
            {.name = "bf16 with error feedback", .options = hook(DType::BF16, true), .tolerance = 0.01}};
}

/// Runs steps of a reducer, and returns the averages of the last one.
class Steps {
public:
    Steps(Context& context, const Way& way, Gpu* gpu) : context_(context), way_(way), gpu_(gpu) {
        ReducerOptions options = way.options;
        options.device = gpu == nullptr ? Device::Cpu : Device::Cuda;
        if (options.hook != nullptr) {  // a hook belongs to one reducer
            const bool narrow = std::string_view(way.name).starts_with("b");
            const bool feedback = std::string_view(way.name).ends_with("feedback");
            options.hook = compress(narrow ? DType::BF16 : DType::F16, {.error_feedback = feedback});
        }
        reducer_.emplace(context.world(), params_, options);
        if (!way.binds) return;
        for (std::size_t i = 0; i < params_.size(); ++i) {
            bound_.push_back(std::vector<float>(params_[i].count));
            reducer_->bind(i, gpu == nullptr ? Buffer(bound_.back()) : gpu->to_device(bound_.back()));
        }
        if (gpu != nullptr) gpu->finish();
    }

    std::vector<std::vector<float>> run() {
        for (int step = 0; step < kSteps; ++step) {
            if (way_.accumulates) {
                const auto guard = reducer_->no_sync();
                backward(step + 100, 1);
            }
            backward(step, way_.accumulates ? 2 : 1);
        }
        std::vector<std::vector<float>> averages;
        for (std::size_t i = 0; i < params_.size(); ++i) averages.push_back(read(reducer_->grad(i)));
        return averages;
    }

private:
    [[nodiscard]] Stream stream() const { return gpu_ == nullptr ? Stream{} : gpu_->stream(); }

    /// Writes one gradient of `every`; the others keep what an earlier backward without sync has left there.
    void backward(int step, std::size_t every) {
        reducer_->begin_backward(true, stream());
        for (std::size_t i = params_.size(); i-- > 0;) {
            values_ = gradient(context_.rank(), step, i, params_[i].count);
            if (i % every == 0) write(reducer_->grad(i));
            reducer_->mark_ready(i, stream());
        }
        (void)reducer_->finish_backward(stream());
    }
    void write(const Buffer& grad) {
        if (gpu_ == nullptr)
            std::memcpy(grad.data, values_.data(), grad.bytes());
        else
            gpu_->fill(grad, values_);
    }
    std::vector<float> read(const Buffer& grad) {
        if (gpu_ != nullptr) return gpu_->to_host<float>(grad);
        const auto* const first = static_cast<const float*>(grad.data);
        return {first, first + grad.count};
    }

    Context& context_;
    const Way& way_;
    Gpu* gpu_;
    const std::vector<ParamSpec> params_ = small_model();
    std::optional<GradientReducer> reducer_;
    std::vector<float> values_;
    std::vector<std::vector<float>> bound_;
};

/// Returns where the averages differ first; empty: nowhere.
std::string difference(const Way& way, const std::vector<std::vector<float>>& found,
                       const std::vector<std::vector<float>>& expected, int ranks) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t k = 0; k < expected[i].size(); ++k) {
            const double limit = way.tolerance * ranks * std::abs(expected[i][k]);
            if (std::abs(found[i][k] - expected[i][k]) > limit)
                return fmt::format("{}: gradient {}, element {}: {}, not {}; ", way.name, i, k, found[i][k],
                                   expected[i][k]);
        }
    }
    return "";
}

struct Model {
    const char* name;
    std::vector<ParamSpec> params;
};

/// Returns the models of tests/gpu/torch_ddp.py, whose names have to be the same.
std::vector<Model> models_of_torch() {
    std::vector<std::size_t> linear;
    for (int layer = 0; layer < 30; ++layer) {
        linear.push_back(1024 * 1024);
        linear.push_back(1024);
    }
    return {{"30_x_Linear(1024)", params_of(linear)},
            {"1000_small_tensors", params_of(std::vector<std::size_t>(1000, 1024))}};
}

}  // namespace

TEST_CASE("gpu: averages of gradients in device memory equal those in host memory", "[gpu][reducer]") {
    RETURN_IF_NO_GPU();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              std::string all;
              for (const Way& way : all_ways()) {
                  const auto expected = Steps(context, way, nullptr).run();
                  all += difference(way, Steps(context, way, &gpu).run(), expected, context.world_size());
              }
              return all;
          }) == "");
}

TEST_CASE("gpu: ranks with fewer steps join the averages of the others in device memory", "[gpu][reducer]") {
    RETURN_IF_NO_GPU();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              GradientReducer reducer(context.world(), params_of({1000}));
              const int steps = 1 + context.rank();
              const std::vector<float> ones(1000, 1.0f);
              float last = 0;
              Join join(context.world(), reducer);
              for (int step = 0; join.more(step < steps); ++step) {
                  reducer.begin_backward(true, gpu.stream());
                  gpu.fill(reducer.grad(0), ones);
                  reducer.mark_ready(0, gpu.stream());
                  (void)reducer.finish_backward(gpu.stream());
                  last = gpu.to_host<float>(reducer.grad(0)).back();
              }
              // In the last step of rank r, ranks 0 to r - 1 have no batch.
              const auto ranks = static_cast<float>(context.world_size());
              const float expected = (ranks - static_cast<float>(context.rank())) / ranks;
              return std::abs(last - expected) < 1e-6f ? "" : fmt::format("{}, not {}; ", last, expected);
          }) == "");
}

TEST_CASE("gpu: a backward on a stream that is being captured is refused, and the next one works",
          "[gpu][capture][reducer]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    GradientReducer reducer(context.world(), params_of({1000, 1000}));
    const auto stream = static_cast<CUstream>(gpu.stream().handle);
    REQUIRE(gpu.api().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CHECK_THROWS_WITH(reducer.begin_backward(true, gpu.stream()), Catch::Matchers::Contains("captured"));
    CUgraph graph = nullptr;
    CHECK(gpu.api().stream_end_capture(stream, &graph) == CUDA_SUCCESS);
    CHECK(gpu.api().graph_destroy(graph) == CUDA_SUCCESS);
    const std::vector<float> values(1000, 2.5f);
    reducer.begin_backward(true, gpu.stream());
    for (std::size_t i = 0; i < 2; ++i) {
        gpu.fill(reducer.grad(i), values);
        reducer.mark_ready(i, gpu.stream());
    }
    (void)reducer.finish_backward(gpu.stream());
    CHECK(gpu.to_host<float>(reducer.grad(1)) == values);
}

namespace {

/// A step whose gradients are copies of a batch in device memory, and whose result are the averages.
class BatchStep {
public:
    GradientReducer reducer;

    BatchStep(Context& context, Gpu& gpu, const std::vector<ParamSpec>& params)
        : reducer(context.world(), params), gpu_(gpu), params_(params) {
        for (const ParamSpec& param : params_) {
            batch_.push_back({gpu.allocate(param.count * sizeof(float)), param.count, DType::F32, Device::Cuda});
            averages_.push_back({gpu.allocate(param.count * sizeof(float)), param.count, DType::F32, Device::Cuda});
        }
    }
    void fill(int rank, int step) {
        for (std::size_t i = 0; i < params_.size(); ++i)
            gpu_.fill(batch_[i], gradient(rank, step, i, params_[i].count));
    }
    void run() {
        reducer.begin_backward(true, gpu_.stream());
        for (std::size_t i = params_.size(); i-- > 0;) {
            copy(reducer.grad(i), batch_[i]);
            reducer.mark_ready(i, gpu_.stream());
        }
        (void)reducer.finish_backward(gpu_.stream());
        for (std::size_t i = 0; i < params_.size(); ++i) copy(averages_[i], reducer.grad(i));
    }
    [[nodiscard]] CapturedStep capture() {
        return reducer.capture(gpu_.stream(), [this] { run(); });
    }
    std::vector<std::vector<float>> averages() {
        std::vector<std::vector<float>> all;
        for (const Buffer& average : averages_) all.push_back(gpu_.to_host<float>(average));
        return all;
    }

private:
    void copy(const Buffer& to, const Buffer& from) {
        const auto queued = gpu_.api().memcpy_async(detail::device_pointer(to.data), detail::device_pointer(from.data),
                                                    from.bytes(), static_cast<CUstream>(gpu_.stream().handle));
        detail::check_cuda(gpu_.api(), queued, "cuMemcpyAsync");
    }
    Gpu& gpu_;
    const std::vector<ParamSpec> params_;
    std::vector<Buffer> batch_;
    std::vector<Buffer> averages_;
};

}  // namespace

TEST_CASE("gpu: 100 replays of a captured step have the averages of its calls", "[gpu][capture][reducer][ranks]") {
    RETURN_IF_NO_GPU();
    CHECK(complaints_of_ranks([](Context& context) -> std::string {
              Gpu gpu(context.local_rank());
              BatchStep step(context, gpu, small_model());
              step.fill(context.rank(), 0);
              step.run();
              const CapturedStep captured = step.capture();
              constexpr int kReplays = 100;
              for (int i = 1; i <= kReplays; ++i) {
                  const int batch = i % 5;
                  step.fill(context.rank(), batch);
                  step.run();
                  const auto expected = step.averages();
                  step.reducer.replay(captured, gpu.stream());
                  if (step.averages() != expected) return fmt::format("other averages in replay {}; ", i);
              }
              for (int i = 0; i < kReplays; ++i) step.reducer.replay(captured, gpu.stream());  // which queue up
              gpu.finish();
              const auto stats = step.reducer.stats();
              const auto steps = static_cast<std::uint64_t>(1 + 3 * kReplays);
              return stats.confirmed == steps ? "" : fmt::format("{} steps confirmed of {}; ", stats.confirmed, steps);
          }) == "");
}

TEST_CASE("gpu: what a replay saves", "[gpu][check][capture][reducer]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    for (const Model& model : models_of_torch()) {
        BatchStep step(context, gpu, model.params);
        for (int i = 0; i < 3; ++i) step.run();
        const CapturedStep captured = step.capture();
        std::vector<double> calls, replays;
        for (int i = 0; i < repetitions(50, 3); ++i) {
            gpu.finish();
            auto begin = ddprun::Clock::now();
            step.run();
            gpu.finish();
            calls.push_back(seconds_since(begin) * 1e3);
            begin = ddprun::Clock::now();
            step.reducer.replay(captured, gpu.stream());
            gpu.finish();
            replays.push_back(seconds_since(begin) * 1e3);
        }
        figure(fmt::format("step_by_calls_{}", model.name), quantile(calls, 0.5), "ms");
        figure(fmt::format("step_by_replay_{}", model.name), quantile(replays, 0.5), "ms");
    }
}

TEST_CASE("gpu: a replay that a peer does not make ends at its deadline, with zeros", "[gpu][check][capture][late]") {
    RETURN_UNLESS_ONE_OF_SEVERAL();
    Gpu gpu;
    InitOptions options = options_of(Backend::Nccl);
    options.timeout = std::chrono::seconds(2);
    Context context = init_from_env(options);
    BatchStep step(context, gpu, small_model());
    step.fill(context.rank(), 0);
    step.run();
    const CapturedStep captured = step.capture();
    step.reducer.replay(captured, gpu.stream());
    gpu.finish();
    if (context.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(5));
        return;
    }
    const auto begin = ddprun::Clock::now();
    step.reducer.replay(captured, gpu.stream());
    std::optional<ErrorCode> code;
    while (!code) {
        try {
            step.reducer.replay(captured, gpu.stream());  // waits while four are in flight
        } catch (const Error& error) {
            code = error.code();
        }
    }
    CHECK(code == ErrorCode::Timeout);
    gpu.finish();  // the kernels have left
    figure_at_most("seconds_until_the_error_and_the_end", seconds_since(begin), "s", 4);
    CHECK(gpu.to_host<std::uint32_t>(step.reducer.step_ok()).front() == 0);
}

TEST_CASE("gpu: what a step of the reducer costs", "[gpu][check][reducer][rates]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    Context context = lone_context(Backend::Nccl);
    for (const Model& model : models_of_torch()) {
        GradientReducer reducer(context.world(), model.params);
        const std::size_t buckets = reducer.plan().buckets.size();
        std::vector<double> launches, marks, steps;
        for (int step = -10; step < repetitions(50, 3); ++step) {
            const auto begin = ddprun::Clock::now();
            reducer.begin_backward(true, gpu.stream());
            std::vector<double> calls;
            for (std::size_t i = model.params.size(); i-- > 0;) {
                const auto call = ddprun::Clock::now();
                reducer.mark_ready(i, gpu.stream());
                calls.push_back(seconds_since(call) * 1e6);
            }
            (void)reducer.finish_backward(gpu.stream());
            gpu.finish();
            if (step < 0) continue;  // warms up
            steps.push_back(seconds_since(begin) * 1e3);
            // The marks that launch a bucket take longest.
            std::sort(calls.begin(), calls.end(), std::greater());
            const auto others = calls.begin() + static_cast<std::ptrdiff_t>(buckets);
            launches.insert(launches.end(), calls.begin(), others);
            marks.insert(marks.end(), others, calls.end());
        }
        figure(fmt::format("buckets_{}", model.name), static_cast<double>(buckets), "launches");
        figure_at_most(fmt::format("launch_of_a_bucket_{}", model.name), quantile(launches, 0.5), "us", 5);
        figure(fmt::format("mark_{}", model.name), quantile(marks, 0.5), "us");
        figure(fmt::format("reducer_alone_{}", model.name), quantile(steps, 0.5), "ms");
    }
}
