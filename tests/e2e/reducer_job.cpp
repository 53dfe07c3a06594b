// A worker of tests of gradients in device memory, over the fakes of NCCL and the CUDA driver. It runs each training
// twice, in host memory and on the device, and compares all bits.
//
// usage: reducer_job equal | order | lost | refused | captured | leaving | sharing | parameters | verify |
//        checkpoints FOLDER
//
// equal       every way to exchange, pass and count gradients. Prints the number of trainings, or the first difference
// order       the same for a few of them, with gradients that take 5 ms on their streams, and on several streams: a
//             missing wait shows as a difference
// lost        the last rank dies in a backward. Prints what the others find on the device and learn on the host
// refused     prints the errors of calls that cannot be right
// captured    a stream with a marked gradient is captured before the gradient's bucket is exchanged
// leaving     rank 0 destroys its reducer right after a backward that the others begin later, one after another
// sharing     two reducers, of which one compresses
// parameters  sync_parameters and verify_parameters on device memory
// verify      verify_parameters alone
// checkpoints saves, also in the background, and loads device memory that streams write before and after the calls

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/e2e/gpu_streams.hpp"

namespace {

using namespace std::chrono_literals;
using ddp::Average;
using ddp::Buffer;
using ddp::Context;
using ddp::Device;
using ddp::DType;
using ddp::GradientReducer;
using ddp::Join;
using ddp::ParamSpec;
using ddp::Stream;
using e2e::error_of;
using e2e::Gpu;
using Bytes = std::vector<std::byte>;

void print(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

// ---- trainings

const std::vector<ParamSpec> kParams{
    {"plain", 40},
    {"empty", 0},
    {"tied", 3, DType::F32, 2},
    {"half", 33, DType::F16},
    {"brain", 7, DType::BF16},
    {"wide", 4, DType::F64},
    {"giant", 3000},
    {"sometimes", 6},
    {"never", 2},
};
constexpr std::size_t kSometimes = 7;  // the last rank uses it in every second step
constexpr std::size_t kNever = 8;
constexpr ddp::BucketLimits kLimits{.bucket_cap_bytes = 1024, .first_bucket_cap_bytes = 200};
constexpr int kBatches = 4;

enum class Exchange { kAuto, kPre, kPost, kInReduce, kHalf, kBrain, kFeedback };
enum class Uneven { kNo, kByAll, kByActive };

struct Case {
    Exchange exchange = Exchange::kAuto;
    Uneven uneven = Uneven::kNo;
    bool bound = false;
    bool rebuild = false;
    bool accumulate = false;  ///< every second backward synchronises
    bool leave_out = false;   ///< gradients without use are not marked at all
    bool callback = false;
    bool slow = false;      ///< gradients take time
    bool in_turns = false;  ///< gradients of a bucket are not marked one after another, but last buckets first

    [[nodiscard]] std::string text() const {
        return fmt::format("exchange {}, uneven {}{}{}{}{}{}", static_cast<int>(exchange), static_cast<int>(uneven),
                           bound ? ", bound" : "", rebuild ? ", rebuild" : "", accumulate ? ", accumulate" : "",
                           leave_out ? ", leave_out" : "", callback ? ", callback" : "");
    }
};

ddp::ReducerOptions options_of(const Case& row, Device device) {
    ddp::ReducerOptions options{.device = device, .limits = kLimits, .rebuild = row.rebuild, .find_unused = true};
    switch (row.exchange) {
        case Exchange::kAuto: break;
        case Exchange::kPre: options.average = Average::Pre; break;
        case Exchange::kPost: options.average = Average::Post; break;
        case Exchange::kInReduce: options.average = Average::InReduce; break;
        case Exchange::kHalf: options.hook = ddp::compress(DType::F16); break;
        case Exchange::kBrain: options.hook = ddp::compress(DType::BF16); break;
        case Exchange::kFeedback: options.hook = ddp::compress(DType::BF16, {.error_feedback = true}); break;
    }
    if (row.leave_out) options.unused = ddp::UnusedPolicy::Zero;
    return options;
}

/// Writes gradients whose sums have to be rounded, or adds them to what is there.
void write_gradient(const Buffer& to, int rank, int batch, std::size_t param, bool adds) {
    const auto value = [&](std::size_t j) {
        return 0.1 + 0.37 * rank + 0.0113 * static_cast<double>(j % 101) + 0.7 * batch +
               0.05 * static_cast<double>(param);
    };
    const auto write = [&]<typename T>(T) {
        auto* const values = static_cast<T*>(to.data);
        for (std::size_t j = 0; j < to.count; ++j) {
            if constexpr (std::is_same_v<T, double>) {
                values[j] = value(j) + (adds ? values[j] : 0);
            } else {
                values[j] = T(static_cast<float>(value(j)) + (adds ? float{values[j]} : 0.0F));
            }
        }
    };
    switch (to.dtype) {
        case DType::F16: return write(ddp::Float16());
        case DType::BF16: return write(ddp::BFloat16());
        case DType::F64: return write(double());
        default: return write(float());
    }
}

bool synchronises(const Case& row, int batch) { return !row.accumulate || batch % 2 == 1; }
bool uses(int rank, int ranks, int batch, std::size_t param) {
    return param != kNever && (param != kSometimes || (rank == ranks - 1 && batch / 2 % 2 == 0));
}
/// The last rank has all of them.
int batches_of(const Case& row, int rank, int ranks) {
    return row.uneven == Uneven::kNo || rank == ranks - 1 ? kBatches : 1 + 2 * rank;
}

/// Trains on one rank. seen() are the averages of all steps, and what the callback saw.
class Training {
public:
    Training(Context& context, Gpu& gpu, const Case& row, Device device)
        : context_(context), gpu_(gpu), row_(row), device_(device) {
        if (device == Device::Cuda) main_ = gpu.make_stream(), side_ = gpu.make_stream();
        ddp::ReducerOptions options = options_of(row, device);
        if (row.callback)
            options.on_bucket_done = [this](const ddp::GradBucket& bucket) { keep(bucket.buffer, bucket.stream); };
        reducer_.emplace(context.world(), kParams, options);
        for (std::size_t i = 1; row.bound && i < kParams.size(); i += 2) {
            const std::size_t count = kParams[i].count;
            const ddp::DType type = kParams[i].dtype;
            bound_.emplace_back(count * size_of(type), std::byte{0});
            const Buffer host{bound_.back().data(), count, type};
            reducer_->bind(i, device == Device::Cuda ? gpu.allocate(count, type) : host);
            reducer_->zero_grads(main_);
        }
    }

    void run() {
        std::optional<Join> join;
        if (row_.uneven != Uneven::kNo)
            join.emplace(context_.world(), *reducer_,
                         ddp::JoinOptions{.divide_by_initial = row_.uneven == Uneven::kByAll});
        const int mine = batches_of(row_, context_.rank(), context_.world_size());
        int batch = 0;
        for (; join ? join->more(batch < mine, {.sync = synchronises(row_, batch)}) : batch < mine; ++batch)
            backward(batch);
        keep_all();
        if (device_ == Device::Cuda) gpu_.finish(main_);
    }

    [[nodiscard]] const std::vector<Bytes>& seen() const { return *seen_; }
    [[nodiscard]] ddp::ReducerStats stats() const { return reducer_->stats(); }
    /// Returns the device's word; 1 for host memory.
    [[nodiscard]] std::uint32_t step_ok() {
        const Buffer word = reducer_->step_ok();
        if (word.data == nullptr) return 1;
        auto value = std::make_shared<std::uint32_t>(7);
        launch(main_, [=] { *value = *static_cast<std::uint32_t*>(word.data); });
        gpu_.finish(main_);
        return *value;
    }

private:
    void launch(Stream stream, std::function<void()> kernel, std::chrono::milliseconds takes = 5ms) {
        if (device_ == Device::Cpu) return kernel();
        if (!row_.slow) return gpu_.launch(stream, std::move(kernel));
        gpu_.launch(stream, [kernel = std::move(kernel), takes] {
            std::this_thread::sleep_for(takes);
            kernel();
        });
    }
    /// Every gradient is computed on one of two streams; the first use of the tied one on the other.
    [[nodiscard]] Stream stream_of(std::size_t param) const { return param % 2 == 0 ? main_ : side_; }

    void backward(int batch) {
        const bool sync = synchronises(row_, batch);
        reducer_->begin_backward(sync, main_);
        if (device_ == Device::Cuda) gpu_.order(main_, side_);
        constexpr std::array<std::size_t, 9> kAsRegistered{0, 1, 2, 3, 4, 5, 6, 7, 8};
        constexpr std::array<std::size_t, 9> kInTurns{7, 5, 8, 4, 6, 1, 3, 2, 0};
        for (const std::size_t i : row_.in_turns ? kInTurns : kAsRegistered) {
            if (uses(context_.rank(), context_.world_size(), batch, i)) {
                compute(batch, i);
            } else if (!row_.leave_out) {
                reducer_->mark_unused(i, stream_of(i));
            }
        }
        const ddp::BackwardResult step = reducer_->finish_backward(main_);
        if (step.synchronised != sync) throw std::runtime_error("synchronised at the wrong time");
        if (sync) return keep_all();
        if (device_ == Device::Cuda) gpu_.order(side_, main_);  // the caller's part without sync
    }

    void compute(int batch, std::size_t i) {
        const int rank = context_.rank();
        const bool adds = row_.accumulate && batch % 2 == 1 && uses(rank, context_.world_size(), batch - 1, i);
        const Buffer view = reducer_->grad(i);
        if (kParams[i].uses == 2 && !row_.leave_out) {  // the first half on one stream, the second on another
            const std::size_t half = view.count / 2;
            Buffer first = view;
            first.count = half;
            Buffer second = view;
            second.data = static_cast<std::byte*>(view.data) + half * size_of(view.dtype);
            second.count = view.count - half;
            launch(
                side_, [=] { write_gradient(first, rank, batch, i, adds); }, 30ms);
            reducer_->mark_ready(i, side_);
            launch(main_, [=] { write_gradient(second, rank, batch, i, adds); });
            reducer_->mark_ready(i, main_);
            return;
        }
        launch(stream_of(i), [=] { write_gradient(view, rank, batch, i, adds); });
        reducer_->mark_ready(i, stream_of(i));
    }

    void keep_all() {
        for (std::size_t i = 0; i < kParams.size(); ++i) keep(reducer_->grad(i), main_);
    }
    void keep(const Buffer& buffer, Stream stream) {
        const auto seen = seen_;
        seen->emplace_back(buffer.bytes());
        auto* const to = seen->back().data();
        const auto copy = [=] {
            if (buffer.bytes() > 0) std::memcpy(to, buffer.data, buffer.bytes());
        };
        device_ == Device::Cpu ? copy() : gpu_.launch(stream, copy);
    }

    Context& context_;
    Gpu& gpu_;
    const Case row_;
    const Device device_;
    Stream main_{};
    Stream side_{};
    std::vector<Bytes> bound_;
    std::shared_ptr<std::vector<Bytes>> seen_ = std::make_shared<std::vector<Bytes>>();
    std::optional<GradientReducer> reducer_;
};

void compare(Context& context, Gpu& gpu, const Case& row) {
    Training host(context, gpu, row, Device::Cpu);
    host.run();
    Training device(context, gpu, row, Device::Cuda);
    device.run();
    if (host.seen().size() != device.seen().size()) throw std::runtime_error(row.text() + ": other buckets");
    for (std::size_t k = 0; k < host.seen().size(); ++k) {
        if (host.seen()[k] == device.seen()[k]) continue;
        std::size_t at = 0;
        while (host.seen()[k][at] == device.seen()[k][at]) ++at;
        throw std::runtime_error(fmt::format("rank {}: {}: buffer {} differs from that in host memory in byte {}",
                                             context.rank(), row.text(), k, at));
    }
    const auto stats = device.stats();
    if (stats.steps != host.stats().steps || stats.bytes_reduced != host.stats().bytes_reduced ||
        stats.confirmed != stats.steps || device.step_ok() != 1)
        throw std::runtime_error(fmt::format("{}: {} steps, {} confirmed, ok {}", row.text(), stats.steps,
                                             stats.confirmed, device.step_ok()));
}

void equal(Context& context, Gpu& gpu) {
    int cases = 0;
    for (int exchange = 0; exchange <= static_cast<int>(Exchange::kFeedback); ++exchange) {
        for (const Uneven uneven : {Uneven::kNo, Uneven::kByAll, Uneven::kByActive}) {
            for (unsigned bits = 0; bits < 8; ++bits) {
                if (uneven != Uneven::kNo && (bits + static_cast<unsigned>(exchange)) % 4 != 0) continue;
                const unsigned more = bits + static_cast<unsigned>(exchange);
                compare(context, gpu,
                        {.exchange = static_cast<Exchange>(exchange),
                         .uneven = uneven,
                         .bound = (bits & 1) != 0,
                         .rebuild = (bits & 2) != 0,
                         .accumulate = (bits & 4) != 0,
                         .leave_out = (more & 1) != 0,
                         .callback = (more & 2) != 0});
                ++cases;
            }
        }
    }
    if (context.rank() == 0) print(fmt::format("{} trainings", cases));
}

/// A gradient that an earlier backward has left, and that takes no part in this one, is ready on the stream of
/// begin_backward: the stream of its mark knows nothing of it.
void accumulate_and_leave(Context& context, Gpu& gpu) {
    const Stream main = gpu.make_stream(), idle = gpu.make_stream();
    GradientReducer reducer(context.world(), {{"left", 4}});
    const Buffer view = reducer.grad(0);
    reducer.begin_backward(false, main);
    gpu.launch(main, [=, value = static_cast<float>(context.rank())] {
        std::this_thread::sleep_for(50ms);
        std::fill_n(static_cast<float*>(view.data), view.count, value);
    });
    reducer.mark_ready(0, main);
    reducer.finish_backward(main);
    reducer.begin_backward(true, main);
    reducer.mark_unused(0, idle);
    reducer.finish_backward(main);
    std::vector<float> seen(4);
    gpu.launch(main, [&seen, view] { std::memcpy(seen.data(), view.data, view.bytes()); });
    gpu.finish(main);
    const float average = static_cast<float>(context.world_size() - 1) / 2;
    if (seen != std::vector<float>(4, average)) throw std::runtime_error(fmt::format("{} is no average", seen));
}

void order(Context& context, Gpu& gpu) {
    accumulate_and_leave(context, gpu);
    int cases = 0;
    for (const Exchange exchange : {Exchange::kAuto, Exchange::kPre, Exchange::kFeedback}) {
        for (const bool accumulate : {false, true}) {
            for (const unsigned bits : {0U, 1U, 2U, 3U}) {
                compare(context, gpu,
                        {.exchange = exchange,
                         .bound = (bits & 1) != 0,
                         .accumulate = accumulate,
                         .callback = true,
                         .slow = true,
                         .in_turns = (bits & 2) != 0});
                ++cases;
            }
        }
    }
    if (context.rank() == 0) print(fmt::format("{} trainings", cases));
}

// ---- failures, refusals, parameters

void lost(Context& context, Gpu& gpu) {
    GradientReducer reducer(context.world(), {{"below", 40}, {"top", 300}},
                            {.limits = {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1}});
    const Stream stream = gpu.make_stream();
    std::vector<float> seen(340, -1.0F);
    std::uint32_t ok = 7;
    for (int step = 0; step < 2; ++step) {
        if (step == 1) gpu.finish(stream);
        if (step == 1 && context.rank() == context.world_size() - 1) std::_Exit(0);  // which ddprun takes for its end
        reducer.begin_backward(true, stream);
        for (const std::size_t i : {1U, 0U}) {
            const Buffer view = reducer.grad(i);
            gpu.launch(stream, [=] { write_gradient(view, 1, 1, i, false); });
            reducer.mark_ready(i, stream);
        }
        reducer.finish_backward(stream);
        const Buffer below = reducer.grad(0), top = reducer.grad(1), word = reducer.step_ok();
        gpu.launch(stream, [&, below, top, word] {
            std::memcpy(seen.data(), below.data, below.bytes());
            std::memcpy(&seen[40], top.data, top.bytes());
            ok = *static_cast<std::uint32_t*>(word.data);
        });
    }
    gpu.finish(stream);
    const bool zeros = seen == std::vector<float>(340, 0.0F);
    const auto stats = reducer.stats();
    const std::string next = error_of([&] { reducer.begin_backward(true, stream); });
    print(fmt::format("rank {}: zeros {}, ok {}, {} of {} confirmed, then {}", context.rank(), zeros, ok,
                      stats.confirmed, stats.steps, next));
}

void refused(Context& context, Gpu& gpu) {
    const Stream good = gpu.make_stream(), captured = gpu.make_stream();
    Gpu other((context.local_rank() + 1) % 2);
    const Stream foreign = other.make_stream();
    std::vector<float> host(4);
    GradientReducer reducer(context.world(), {{"a", 4}, {"b", 4}});
    std::vector<std::string> texts;
    const auto attempt = [&](const std::function<void()>& call) { texts.push_back(error_of(call)); };
    gpu.capture(captured);
    attempt([&] { reducer.begin_backward(true, captured); });
    attempt([&] { reducer.zero_grads(captured); });
    attempt([&] { reducer.begin_backward(true, foreign); });
    attempt([&] { (void)reducer.grad<float>(0); });
    attempt([&] { reducer.bind(0, host); });
    attempt([&] { reducer.bind(0, {host.data(), host.size(), Device::Cuda}); });
    attempt([&] { reducer.verify_parameters({{host.data(), 4, Device::Cuda}, {host.data(), 4, Device::Cuda}}); });
    reducer.begin_backward(true, good);
    attempt([&] { reducer.mark_ready(0, captured); });
    attempt([&] { reducer.mark_unused(0, foreign); });
    reducer.mark_ready(0, good);
    reducer.mark_unused(1, good);
    attempt([&] { (void)reducer.finish_backward(captured); });
    reducer.finish_backward(good);  // none of these took the mark
    Context native = ddp::init_from_env({.backend = ddp::Backend::Native});
    attempt([&] { GradientReducer(native.world(), {{"a", 4}}, {.device = Device::Cuda}); });
    attempt([&] {
        GradientReducer(context.world(), {{"a", 4}}, {.device = context.rank() == 0 ? Device::Cpu : Device::Cuda});
    });
    if (context.rank() == 0) print(fmt::format("{}", fmt::join(texts, "\n")));
}

void captured(Context& context, Gpu& gpu) {
    const Stream side = gpu.make_stream(), main = gpu.make_stream();
    GradientReducer reducer(context.world(), {{"a", 4}, {"b", 4}});  // one bucket
    std::vector<std::string> texts;
    reducer.begin_backward(true, main);
    reducer.mark_ready(0, side);
    gpu.capture(side);
    texts.push_back(error_of([&] { reducer.mark_ready(1, main); }));
    texts.emplace_back(gpu.end_capture(side) ? "valid" : "invalid");
    texts.push_back(error_of([&] { reducer.mark_ready(1, main); }));
    texts.push_back(error_of([&] { (void)reducer.finish_backward(main); }));
    if (context.rank() == 0) print(fmt::format("{}", fmt::join(texts, "\n")));
}

/// The reducer has no gradients, so that nothing of a backward but the comparison of its number needs the other rank.
void leaving(Context& context, Gpu& gpu) {
    const Stream stream = gpu.make_stream();
    GradientReducer reducer(context.world(), {});
    std::this_thread::sleep_for(100ms * context.rank());
    reducer.begin_backward(true, stream);
    (void)reducer.finish_backward(stream);
    if (context.rank() == 0) return;
    std::this_thread::sleep_for(300ms);  // in which a lost rank would be noticed
    print(error_of([&] {
        reducer.begin_backward(false, stream);
        (void)reducer.finish_backward(stream);
    }));
}

void sharing(Context& context, Gpu& gpu) {
    const Stream stream = gpu.make_stream();
    GradientReducer plain(context.world(), {{"a", 4}});
    GradientReducer small(context.world(), {{"a", 4}}, {.hook = ddp::compress(DType::F16)});
    for (GradientReducer* const reducer : {&plain, &small}) {
        reducer->begin_backward(true, stream);
        reducer->mark_ready(0, stream);
        (void)reducer->finish_backward(stream);
    }
    gpu.finish(stream);
    if (context.rank() == 0) print("accepted");
}

void verify(Context& context, Gpu& gpu) {
    const Stream stream = gpu.make_stream();
    GradientReducer reducer(context.world(), {{"a", 5}});
    const Buffer values = gpu.allocate(5, DType::F32);
    gpu.launch(stream, [=] { std::fill_n(static_cast<float*>(values.data), values.count, 1.0F); });
    const std::string text = error_of([&] { reducer.verify_parameters({values}, stream); });
    if (context.rank() == 0) print(text);
}

void parameters(Context& context, Gpu& gpu) {
    constexpr std::size_t kLarge = 9'000'000;  // more than one piece
    const Stream stream = gpu.make_stream();
    const Buffer large = gpu.allocate(kLarge, DType::F32), small = gpu.allocate(5, DType::F32);
    GradientReducer reducer(context.world(), {{"small", 5}, {"large", kLarge}});
    const auto fill = [&](const Buffer& buffer, std::size_t from, float value) {
        gpu.launch(stream, [=] {
            std::this_thread::sleep_for(100ms);
            auto* const values = static_cast<float*>(buffer.data);
            std::fill(values + from, values + buffer.count, value);
        });
    };
    const auto own = static_cast<float>(context.rank());
    fill(large, 0, own);
    fill(small, 0, own);
    std::vector<std::string> texts;
    const auto verify = [&] { texts.push_back(error_of([&] { reducer.verify_parameters({small, large}, stream); })); };
    reducer.sync_parameters({small, large}, 1, stream);
    verify();
    fill(small, 3, own);
    verify();
    reducer.sync_parameters({small}, 1, stream);
    fill(large, kLarge - 2, own);
    verify();
    // A call that is refused in its middle waits for what it has started: then the memory is the caller's again.
    if (context.rank() == 0) {
        std::vector<float> host(5);
        const Stream other = gpu.make_stream();
        texts.push_back(error_of([&] { reducer.sync_parameters({small, {host.data(), 5, Device::Cuda}}, 1, stream); }));
        gpu.launch(other, [=] { std::fill_n(static_cast<float*>(small.data), small.count, -5.0F); });
        context.world().barrier().wait();
        gpu.launch(other, [&host, small] { std::memcpy(host.data(), small.data, small.bytes()); });
        gpu.finish(other);
        if (host != std::vector<float>(5, -5.0F)) throw std::runtime_error("a broadcast came after its call's error");
    } else {
        std::this_thread::sleep_for(100ms);
        reducer.sync_parameters({small}, 1, stream);
        context.world().barrier().wait();
    }
    if (context.rank() == 0) print(fmt::format("{}", fmt::join(texts, "\n")));
}

void checkpoints(Context& context, Gpu& gpu, const std::string& folder) {
    const Stream main = gpu.make_stream(), reader = gpu.make_stream();
    std::vector<Buffer> tensors;  // more than there are pieces of pinned memory, which are as large as the largest
    for (const std::size_t count : {1000U, 1000U, 7U, 1000U, 1000U}) tensors.push_back(gpu.allocate(count, DType::F32));
    std::vector<ddp::NamedBuffer> state;
    for (const Buffer& tensor : tensors) state.push_back({fmt::format("tensor {}", state.size()), tensor});
    const auto value_of = [](int step) { return static_cast<float>(10 * step); };
    const auto write = [&](int step) {
        gpu.launch(main, [=, value = value_of(step)] {
            std::this_thread::sleep_for(50ms);
            for (const Buffer& tensor : tensors) std::fill_n(static_cast<float*>(tensor.data), tensor.count, value);
        });
    };
    ddp::Checkpointer checkpointer(folder, context);
    write(1);
    checkpointer.save(1, state, main);
    write(2);
    checkpointer.save_async(2, state, main);
    write(3);
    checkpointer.wait();
    for (const int step : {1, 2}) {
        write(4);
        checkpointer.load(static_cast<std::uint64_t>(step), state, main);
        std::vector<float> seen;
        gpu.launch(reader, [&] {  // what is enqueued after the load sees the values, on any stream
            for (const Buffer& tensor : tensors)
                seen.insert(seen.end(), static_cast<float*>(tensor.data),
                            static_cast<float*>(tensor.data) + tensor.count);
        });
        gpu.finish(reader);
        if (seen != std::vector<float>(4007, value_of(step)))
            throw std::runtime_error(fmt::format("checkpoint {} is wrong", step));
    }
    if (context.rank() == 0) print("2 checkpoints");
}

int run(const std::string& mode, const std::string& folder) {
    Context context = ddp::init_from_env({.backend = ddp::Backend::Nccl});
    Gpu gpu(context.local_rank());
    if (mode == "equal") equal(context, gpu);
    if (mode == "order") order(context, gpu);
    if (mode == "lost") lost(context, gpu);
    if (mode == "refused") refused(context, gpu);
    if (mode == "captured") captured(context, gpu);
    if (mode == "leaving") leaving(context, gpu);
    if (mode == "sharing") sharing(context, gpu);
    if (mode == "parameters") parameters(context, gpu);
    if (mode == "verify") verify(context, gpu);
    if (mode == "checkpoints") checkpoints(context, gpu, folder);
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    try {
        return run(argv[1], argc > 2 ? argv[2] : "");
    } catch (const std::exception& error) {
        fmt::print(stderr, "reducer_job: {}\n", error.what());
        return EXIT_FAILURE;
    }
}
