// A worker of tests of captured steps, over the fakes of NCCL and the CUDA driver.
//
// usage: captured_steps_job MODE
//
// equal     trains by calls and by replays, and compares all bits. Prints the number of trainings, or the first
//           difference. The last rank comes late to some replays
// lost      the last rank ends before its second replay. Prints what the others find on the device and on the host
// slow      the same, with an optimiser that takes 2 s of the graph
// queued    the last rank ends while a step by calls and such a replay of the others are in flight
// late      the last rank ends during the captures of the others, which take 3 s, and while a step is in flight
// stuck     the same, and the captures take as long as a fault has them take
// refused   prints the errors of captures and replays that cannot be right, then trains on
// broken    prints the errors of functions that make no graph
// mixed     one rank replays while the other makes calls; prints the error of rank 0
// half      one rank captures while the other makes calls; the same
// thrown    the function of rank 1 throws in the capture
// outlived  reducers that end before their captured steps, one of them in a replay
// second    a second reducer captures, before and after the first one's captured step is gone

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/e2e/gpu_streams.hpp"

namespace {

using namespace std::chrono_literals;
using ddp::Buffer;
using ddp::CapturedStep;
using ddp::Context;
using ddp::DType;
using ddp::GradientReducer;
using ddp::ParamSpec;
using ddp::Stream;
using e2e::error_of;
using e2e::Gpu;
using Bytes = std::vector<std::byte>;

const std::vector<ParamSpec> kParams{
    {"plain", 40}, {"half", 33, DType::F16}, {"empty", 0}, {"giant", 3000}, {"small", 7}};
constexpr ddp::BucketLimits kLimits{.bucket_cap_bytes = 1024, .first_bucket_cap_bytes = 200};
constexpr int kSteps = 20;

struct Case {
    bool bound = false;
    bool rebuild = false;
    bool in_callback = false;  ///< the optimiser runs for each bucket when it has its averages
    bool slow = false;         ///< gradients take time: a missing wait shows as a difference
    std::chrono::milliseconds optimiser_takes{};
    std::chrono::milliseconds capture_takes{};  ///< on the host, in the middle of its backward
};

float value_of(const Buffer& buffer, std::size_t i) {
    return buffer.dtype == DType::F16 ? float{static_cast<ddp::Float16*>(buffer.data)[i]}
                                      : static_cast<float*>(buffer.data)[i];
}
void set(const Buffer& buffer, std::size_t i, float value) {
    if (buffer.dtype == DType::F16) {
        static_cast<ddp::Float16*>(buffer.data)[i] = ddp::Float16(value);
    } else {
        static_cast<float*>(buffer.data)[i] = value;
    }
}

/// One rank's model, data and optimiser on the fake device. A step reads `batch`, on two streams.
class Training {
public:
    Training(Context& context, Gpu& gpu, const Case& row)
        : context_(context),
          gpu_(gpu),
          row_(row),
          main_(gpu.make_stream()),
          side_(gpu.make_stream()),
          batch_(gpu.allocate(1, DType::F32)) {
        ddp::ReducerOptions options{.limits = kLimits, .rebuild = row.rebuild};
        if (row.in_callback)
            options.on_bucket_done = [this](const ddp::GradBucket& bucket) {
                for (const auto& gradient : bucket.gradients) update(gradient.param, gradient.values, bucket.stream);
            };
        reducer.emplace(context.world(), kParams, options);
        for (const ParamSpec& param : kParams) weights_.push_back(gpu.allocate(param.count, param.dtype));
        for (std::size_t i = 0; i < kParams.size(); ++i) {
            gpu.launch(main_, [weight = weights_[i], i] {
                for (std::size_t j = 0; j < weight.count; ++j)
                    set(weight, j, 0.3F + 0.01F * static_cast<float>(i + j % 13));
            });
            if (row.bound && i % 2 == 0) reducer->bind(i, gpu.allocate(kParams[i].count, kParams[i].dtype));
        }
    }

    void copy_batch(int step) {
        gpu_.launch(main_, [batch = batch_, value = 0.37F * static_cast<float>(context_.rank()) +
                                                    0.11F * static_cast<float>(step)] { set(batch, 0, value); });
    }
    void step() {
        reducer->begin_backward(true, main_);
        gpu_.order(main_, side_);
        for (std::size_t i = kParams.size(); i-- > 0;) {
            if (i == 1 && is_capturing_) {
                context_.store().set(fmt::format("in flight {}", context_.rank()), "");
                std::this_thread::sleep_for(row_.capture_takes);
            }
            const Stream stream = i % 2 == 0 ? main_ : side_;
            gpu_.launch(stream, [gradient = reducer->grad(i), weight = weights_[i], batch = batch_,
                                 takes = row_.slow ? 3ms : 0ms] {
                std::this_thread::sleep_for(takes);
                for (std::size_t j = 0; j < weight.count; ++j)
                    set(gradient, j, value_of(batch, 0) - 0.1F * value_of(weight, j));
            });
            reducer->mark_ready(i, stream);
        }
        reducer->finish_backward(main_);
        for (std::size_t i = 0; !row_.in_callback && i < kParams.size(); ++i) update(i, reducer->grad(i), main_);
    }
    void by_calls(int from, int to) {
        for (int step = from; step < to; ++step) {
            copy_batch(step);
            this->step();
        }
    }
    [[nodiscard]] CapturedStep capture() {
        is_capturing_ = true;
        return reducer->capture(main_, [this] { step(); });
    }
    void replay(const CapturedStep& captured, int step) {
        copy_batch(step);
        reducer->replay(captured, main_);
    }

    [[nodiscard]] Bytes weights() {
        Bytes all;
        gpu_.finish(main_);
        for (const Buffer& weight : weights_) {
            const auto* const begin = static_cast<const std::byte*>(weight.data);
            all.insert(all.end(), begin, begin + weight.bytes());
        }
        return all;
    }
    [[nodiscard]] std::uint32_t step_ok() {
        gpu_.finish(main_);
        return *static_cast<const std::uint32_t*>(reducer->step_ok().data);
    }
    [[nodiscard]] Stream stream() const { return main_; }

    std::optional<GradientReducer> reducer;

private:
    void update(std::size_t param, const Buffer& average, Stream stream) {
        gpu_.launch(stream, [weight = weights_[param], average, takes = param == 0 ? row_.optimiser_takes : 0ms] {
            std::this_thread::sleep_for(takes);
            for (std::size_t j = 0; j < weight.count; ++j)
                set(weight, j, value_of(weight, j) - 0.25F * value_of(average, j));
        });
    }

    Context& context_;
    Gpu& gpu_;
    const Case row_;
    const Stream main_;
    const Stream side_;
    const Buffer batch_;
    std::vector<Buffer> weights_;
    bool is_capturing_ = false;
};

void compare(Context& context, Gpu& gpu, const Case& row) {
    Training by_calls(context, gpu, row);
    by_calls.by_calls(0, kSteps);
    const Bytes expected = by_calls.weights();
    Training replayed(context, gpu, row);
    const int before = row.rebuild ? 2 : 1;
    replayed.by_calls(0, before);
    const CapturedStep captured = replayed.capture();
    int step = before;
    for (; step < kSteps - 3; ++step) {
        if (step % 7 == 3 && context.rank() == context.world_size() - 1) std::this_thread::sleep_for(30ms);
        replayed.replay(captured, step);
    }
    replayed.by_calls(step, step + 2);  // calls and replays may alternate
    replayed.replay(captured, step + 2);
    const auto name = fmt::format("bound {}, rebuild {}, callback {}", row.bound, row.rebuild, row.in_callback);
    if (replayed.weights() != expected) throw std::runtime_error(name + ": other weights than by calls");
    const auto stats = replayed.reducer->stats();
    const auto eager = by_calls.reducer->stats();
    if (stats.steps != eager.steps || stats.bytes_reduced != eager.bytes_reduced || stats.confirmed != kSteps ||
        replayed.step_ok() != 1)
        throw std::runtime_error(fmt::format("{}: {} steps, {} bytes, {} confirmed, ok {}", name, stats.steps,
                                             stats.bytes_reduced, stats.confirmed, replayed.step_ok()));
}

void equal(Context& context, Gpu& gpu) {
    int cases = 0;
    for (unsigned bits = 0; bits < 8; ++bits, ++cases)
        compare(context, gpu,
                {.bound = (bits & 1) != 0,
                 .rebuild = (bits & 2) != 0,
                 .in_callback = (bits & 4) != 0,
                 .slow = bits % 3 == 0});
    if (context.rank() == 0) fmt::print("{} trainings\n", cases);
}

/// Returns the first error of a call that is repeated.
std::string first_error(const std::function<void(int step)>& call) {
    std::string error = "accepted";
    for (int step = 1; error == "accepted"; ++step) {
        error = error_of([&] { call(step); });
        std::this_thread::sleep_for(10ms);
    }
    return error;
}

/// Ends this process, which ddprun takes for its end, when all other ranks have called what this one never makes.
[[noreturn]] void end_when_others_are_in_flight(Context& context) {
    for (int rank = 0; rank + 1 < context.world_size(); ++rank)
        (void)context.store().get(fmt::format("in flight {}", rank), 1min);
    std::_Exit(0);
}

/// A step by calls is in flight, and a replay behind it, whose optimiser goes on when the exchange has been given up.
void queued(Context& context, Gpu& gpu) {
    Training training(context, gpu, {.optimiser_takes = 2s});
    training.by_calls(0, 1);
    const CapturedStep captured = training.capture();
    training.replay(captured, 1);
    gpu.finish(training.stream());
    context.world().barrier().wait();
    if (context.rank() == context.world_size() - 1) end_when_others_are_in_flight(context);
    training.by_calls(2, 3);
    training.replay(captured, 3);
    context.store().set(fmt::format("in flight {}", context.rank()), "");
    fmt::print("rank {}: {}\n", context.rank(), first_error([&](int step) {
                   gpu.finish(training.stream());
                   training.replay(captured, 3 + step);
               }));
}

void lost(Context& context, Gpu& gpu, std::chrono::milliseconds optimiser_takes) {
    Training training(context, gpu, {.optimiser_takes = optimiser_takes});
    training.by_calls(0, 1);
    const CapturedStep captured = training.capture();
    training.replay(captured, 1);
    const Bytes before = training.weights();
    if (context.rank() == context.world_size() - 1) std::_Exit(0);  // which ddprun takes for its end
    std::string error = "accepted";
    const auto called = std::chrono::steady_clock::now();
    for (int step = 2; error == "accepted"; ++step) {
        error = error_of([&] { training.replay(captured, step); });
        if (optimiser_takes > 0ms) gpu.finish(training.stream());  // one at a time
        std::this_thread::sleep_for(10ms);
    }
    const auto failed = std::chrono::steady_clock::now();
    const bool kept = training.weights() == before;
    const auto stats = training.reducer->stats();
    fmt::print("rank {}: kept {}, ok {}, {} confirmed, {}, then {}\n", context.rank(), kept, training.step_ok(),
               stats.confirmed, failed - called < 5s + optimiser_takes ? "soon" : "late", error);
}

void late(Context& context, Gpu& gpu, std::chrono::milliseconds capture_takes) {
    Training training(context, gpu, {.capture_takes = capture_takes});
    training.by_calls(0, 1);
    gpu.finish(training.stream());
    context.world().barrier().wait();
    if (context.rank() == context.world_size() - 1) {
        end_when_others_are_in_flight(context);
    }
    training.by_calls(1, 2);  // stays in flight
    fmt::print("rank {}: {}\n", context.rank(), error_of([&] { (void)training.capture(); }));
}

void broken(Context& context, Gpu& gpu) {
    std::vector<std::string> texts;
    const auto attempt = [&](const std::function<void(Training&)>& step) {
        Training training(context, gpu, {});
        training.by_calls(0, 1);
        gpu.finish(training.stream());
        texts.push_back(error_of([&] { (void)training.reducer->capture(training.stream(), [&] { step(training); }); }));
        texts.push_back(error_of([&] { training.by_calls(1, 2); }));
    };
    attempt([](Training& training) { training.reducer->begin_backward(true, training.stream()); });
    attempt([&](Training& training) {
        training.step();
        const Stream side = gpu.make_stream();
        gpu.order(training.stream(), side);
        gpu.launch(side, [] {});
    });
    if (context.rank() == 0) fmt::print("{}\n", fmt::join(texts, "\n"));
}

void mixed(Context& context, Gpu& gpu, bool both_capture) {
    Training training(context, gpu, {});
    training.by_calls(0, 1);
    std::optional<CapturedStep> captured;
    const bool calls = context.rank() == 1;
    const std::string error = first_error([&](int step) {
        if (!captured && (both_capture || !calls)) captured = training.capture();
        if (calls || !captured) return training.by_calls(step, step + 1);
        training.replay(*captured, step);
    });
    if (context.rank() == 0) fmt::print("{}\n", error);
}

void refused(Context& context, Gpu& gpu) {
    std::vector<std::string> texts;
    const auto attempt = [&](const std::function<void()>& call) { texts.push_back(error_of(call)); };
    Training training(context, gpu, {});
    GradientReducer& reducer = *training.reducer;
    attempt([&] { (void)training.capture(); });
    training.by_calls(0, 1);
    attempt([&] { (void)reducer.capture({}, [] {}); });
    attempt([&] { reducer.replay({}, training.stream()); });
    {
        const GradientReducer::NoSync guard = reducer.no_sync();
        attempt([&] { (void)training.capture(); });
    }
    reducer.begin_backward(false, training.stream());
    attempt([&] { (void)training.capture(); });
    for (std::size_t i = 0; i < kParams.size(); ++i) reducer.mark_unused(i, training.stream());
    reducer.finish_backward(training.stream());
    attempt([&] { (void)training.capture(); });
    training.by_calls(1, 2);
    const Stream outside = gpu.make_stream();
    const Buffer word = gpu.allocate(1, DType::F32);
    CapturedStep captured = reducer.capture(training.stream(), [&] {
        attempt([&] { reducer.begin_backward(true, outside); });
        attempt([&] { reducer.begin_backward(false, training.stream()); });
        attempt([&] { (void)reducer.capture(training.stream(), [] {}); });
        std::thread([&] { attempt([&] { reducer.mark_ready(0, training.stream()); }); }).join();
        attempt([&] { (void)context.world().all_reduce(word, ddp::ReduceOp::Sum, {.stream = training.stream()}); });
        training.step();
        attempt([&] { reducer.begin_backward(true, training.stream()); });
    });
    {
        ddp::Join join(context.world(), reducer);
        attempt([&] { (void)training.capture(); });
    }
    GradientReducer used(context.world(), {{"a", 4}}, {.find_unused = true});
    attempt([&] { (void)used.capture(training.stream(), [] {}); });
    Training rebuilt(context, gpu, {.rebuild = true});
    rebuilt.by_calls(0, 1);
    attempt([&] { (void)rebuilt.capture(); });
    training.replay(captured, 2);
    reducer.bind(0, gpu.allocate(kParams[0].count, DType::F32));
    attempt([&] { reducer.replay(captured, training.stream()); });
    Training other(context, gpu, {});
    attempt([&] { other.reducer->replay(captured, training.stream()); });
    captured = training.capture();
    training.replay(captured, 3);
    gpu.finish(training.stream());
    GradientReducer host(context.world(), {{"a", 4}}, {.device = ddp::Device::Cpu});
    attempt([&] { (void)host.capture(training.stream(), [] {}); });
    GradientReducer narrow(context.world(), {{"a", 4}}, {.hook = ddp::compress(DType::F16)});
    attempt([&] { (void)narrow.capture(training.stream(), [] {}); });
    attempt([&] { (void)reducer.capture(training.stream(), [] {}); });
    attempt([&] { training.by_calls(4, 5); });
    if (context.rank() == 0) fmt::print("{}\n", fmt::join(texts, "\n"));
}

void thrown(Context& context, Gpu& gpu) {
    Training training(context, gpu, {});
    training.by_calls(0, 1);
    gpu.finish(training.stream());
    context.world().barrier().wait();  // the other rank has its first step, too
    std::string text;
    if (context.rank() == 1) {
        try {
            (void)training.reducer->capture(training.stream(),
                                            [] { throw std::runtime_error("the model is too large"); });
        } catch (const std::runtime_error& error) {
            text = error.what();
        }
        text += fmt::format(", then {}", error_of([&] { training.by_calls(1, 2); }));
    } else {
        std::optional<CapturedStep> captured;
        text = first_error([&](int step) {
            if (!captured) captured = training.capture();
            training.replay(*captured, step);
        });
    }
    fmt::print("rank {}: {}\n", context.rank(), text);
}

void outlived(Context& context, Gpu& gpu) {
    std::vector<CapturedStep> captured;
    for (int round = 0; round < 2; ++round) {
        Training training(context, gpu, {.slow = round == 1});
        training.by_calls(0, 1);
        captured.push_back(training.capture());
        training.replay(captured.back(), 1);
        if (round == 0) gpu.finish(training.stream());
    }
    Training next(context, gpu, {});
    next.by_calls(0, 1);
    const std::string text = error_of([&] { next.replay(captured.front(), 1); });
    if (context.rank() == 0) fmt::print("{}\n", text);
}

void second(Context& context, Gpu& gpu) {
    Training first(context, gpu, {}), other(context, gpu, {});
    first.by_calls(0, 1);
    other.by_calls(0, 1);
    CapturedStep captured = first.capture();
    std::vector<std::string> texts;
    texts.push_back(error_of([&] { (void)other.capture(); }));
    first.replay(captured, 1);
    captured = {};
    texts.push_back(error_of([&] {
        const CapturedStep now = other.capture();
        other.replay(now, 1);
    }));
    gpu.finish(other.stream());
    if (context.rank() == 0) fmt::print("{}\n", fmt::join(texts, "\n"));
}

int run(const std::string& mode) {
    Context context = ddp::init_from_env({.backend = ddp::Backend::Nccl});
    Gpu gpu(context.local_rank());
    if (mode == "equal") equal(context, gpu);
    if (mode == "lost") lost(context, gpu, 0ms);
    if (mode == "slow") lost(context, gpu, 2s);
    if (mode == "queued") queued(context, gpu);
    if (mode == "late") late(context, gpu, 3s);
    if (mode == "stuck") late(context, gpu, 0s);
    if (mode == "broken") broken(context, gpu);
    if (mode == "mixed") mixed(context, gpu, true);
    if (mode == "half") mixed(context, gpu, false);
    if (mode == "refused") refused(context, gpu);
    if (mode == "thrown") thrown(context, gpu);
    if (mode == "outlived") outlived(context, gpu);
    if (mode == "second") second(context, gpu);
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    try {
        return run(argv[1]);
    } catch (const std::exception& error) {
        fmt::print(stderr, "captured_steps_job: {}\n", error.what());
        return EXIT_FAILURE;
    }
}
