// A worker of tests over the fakes of NCCL and the CUDA driver.
//
// usage: nccl_job equal COUNT… | groups | brief | auto | undeclared | free | abort | raise RANK idle|busy|slow
//        nccl_job loop TIMEOUT_MS [absent RANK CALL | mute RANK | hasty]
//
// equal   every collective, type and reduction of these counts gives the bits of the native backend, in a world of the
//         same processes. Prints the number of comparisons, or the first difference
// groups  split, shrink, messages, barriers, and operations on host memory, over a fake device
// brief   destroys groups as soon as their results are on the host
// auto    prints the backend that Backend::Auto chooses
// undeclared  prints the errors of calls that get device memory without Device::Cuda
// free    ends a group that has been aborted while a kernel of the program runs for 4 s, then sums on the world
// abort   aborts a group while an operation of the world, for which rank 0 waits 4 s, is in flight, and one of the
//         group behind a kernel of the program. Both ranks print the world's sum, rank 0 the error of the other one
// raise   repeats an all_reduce, until that rank throws an exception: at call 5, which it has not made ("idle"), which
//         is in flight ("busy"), or which waits for a kernel of 3 s ("slow")
// loop    repeats an all_reduce until it fails, then prints "rank R: CODE [CULPRIT…] call N, S s | TEXT" and ends at
//         once. Ignores SIGTERM, by which ddprun ends the others when one has died. `absent`: that rank does not make
//         that call, and waits for the others' reports. `mute`: the stderr of that rank is a full pipe. `hasty`: no
//         rank waits for the reports of others

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
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
#include "worker_lib/src/cuda/device_access.hpp"
#include "worker_lib/src/cuda/group_device.hpp"

namespace {

using namespace std::chrono_literals;
using ddp::Buffer;
using ddp::ConstBuffer;
using ddp::Context;
using ddp::Device;
using ddp::DType;
using ddp::ProcessGroup;
using ddp::ReduceOp;
using Counts = std::vector<std::size_t>;

constexpr DType kTypes[] = {DType::Bool, DType::I8,  DType::U8,  DType::I16,  DType::U16, DType::I32, DType::U32,
                            DType::I64,  DType::U64, DType::F16, DType::BF16, DType::F32, DType::F64};
constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product};
constexpr const char* kReductions[] = {"all_reduce", "reduce", "reduce_scatter"};
constexpr const char* kMoves[] = {"broadcast", "all_gather", "all_gather_v", "gather",       "gather_v",
                                  "scatter",   "scatter_v",  "all_to_all",   "all_to_all_v", "ring of messages"};

void print(const std::string& line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

void require(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
}

bool has(DType type, ReduceOp op) {
    if (type == DType::I16 || type == DType::U16) return false;  // NCCL does not reduce them
    return op != ReduceOp::Avg || is_float(type);
}

/// Fills a buffer with values whose sums and products have to be rounded, the same on both backends.
void fill(void* to, DType type, std::size_t count, unsigned seed) {
    const auto put = [&]<typename T>(T, auto value_of) {
        for (std::size_t i = 0; i < count; ++i) static_cast<T*>(to)[i] = value_of(i);
    };
    const auto word = [&](std::size_t i) {
        auto bits = static_cast<std::uint32_t>(seed * 2654435761U + i * 40503U);
        bits ^= bits >> 13;
        bits *= 2246822519U;
        return bits ^ (bits >> 16);
    };
    const auto real = [&](std::size_t i) { return 0.5F + static_cast<float>(word(i) % 10007) / 9973.0F; };
    switch (type) {
        case DType::Bool: return put(bool(), [&](std::size_t i) { return word(i) % 3 == 0; });
        case DType::F16: return put(ddp::Float16(), [&](std::size_t i) { return ddp::Float16(real(i)); });
        case DType::BF16: return put(ddp::BFloat16(), [&](std::size_t i) { return ddp::BFloat16(real(i)); });
        case DType::F32: return put(float(), real);
        case DType::F64: return put(double(), [&](std::size_t i) { return static_cast<double>(real(i)) / 3; });
        default: break;
    }
    auto* const bytes = static_cast<unsigned char*>(to);
    for (std::size_t i = 0; i < count * size_of(type); ++i) bytes[i] = static_cast<unsigned char>(word(i));
}

/// One operation, with parts of `count` elements, or of `count` + rank.
struct Case {
    std::string what;
    DType type = DType::F32;
    ReduceOp op = ReduceOp::Sum;
    std::size_t count = 0;

    [[nodiscard]] std::string text() const {
        return fmt::format("{} of {} {}, {}", what, count, to_string(type), to_string(op));
    }
};

/// Runs the operation with `in` and `out`, which have room for a part of count + rank for each rank.
ddp::Work start(ProcessGroup& group, const Case& one, void* in, void* out, Device device, ddp::OpOptions options) {
    const auto ranks = static_cast<std::size_t>(group.size());
    const auto own = static_cast<std::size_t>(group.rank());
    const int root = group.size() - 1;
    const auto given = [&](std::size_t count) { return ConstBuffer(in, count, one.type, device); };
    const auto taken = [&](std::size_t count) { return Buffer(out, count, one.type, device); };
    const std::size_t part = one.count;
    Counts counts;
    std::size_t whole = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) whole += counts.emplace_back(part + rank);
    if (one.what == "all_reduce") return group.all_reduce(given(part), taken(part), one.op, options);
    if (one.what == "reduce") return group.reduce(given(part), taken(part), one.op, root, options);
    if (one.what == "reduce_scatter") return group.reduce_scatter(given(part * ranks), taken(part), one.op, options);
    if (one.what == "broadcast") return group.broadcast(Buffer(in, part, one.type, device), root, options);
    if (one.what == "all_gather") return group.all_gather(given(part), taken(part * ranks), options);
    if (one.what == "all_gather_v") return group.all_gather_v(given(counts[own]), taken(whole), counts, options);
    if (one.what == "gather") return group.gather(given(part), taken(part * ranks), root, options);
    if (one.what == "gather_v") return group.gather_v(given(counts[own]), taken(whole), counts, root, options);
    if (one.what == "scatter") return group.scatter(given(part * ranks), taken(part), root, options);
    if (one.what == "scatter_v") return group.scatter_v(given(whole), taken(counts[own]), counts, root, options);
    if (one.what == "all_to_all") return group.all_to_all(given(part * ranks), taken(part * ranks), options);
    if (one.what == "all_to_all_v") {
        const Counts from_each(ranks, counts[own]);
        return group.all_to_all_v(given(whole), counts, taken(from_each[0] * ranks), from_each, options);
    }
    ddp::TransferBatch batch = group.batch();
    batch.send(given(part), static_cast<int>((own + 1) % ranks))
        .recv(taken(part), static_cast<int>((own + ranks - 1) % ranks));
    return batch.start(options);
}

/// Runs cases on both backends, and compares all bytes of both buffers.
class Comparison {
public:
    explicit Comparison(Context& nccl, Context& native, std::size_t most)
        : nccl_(nccl), native_(native), device_(ddp::detail::open_device(nccl.local_rank())) {
        const auto ranks = static_cast<std::size_t>(nccl.world_size());
        elements_ = ranks * (most + ranks);
        bytes_ = elements_ * sizeof(double);
        in_ = nccl.world().arena().allocate(bytes_);
        out_ = nccl.world().arena().allocate(bytes_);
    }

    void run(const Case& one) {
        std::vector<std::byte> in(bytes_), out(bytes_, std::byte{0x5a});
        fill(in.data(), one.type, elements_, static_cast<unsigned>(nccl_.rank() + 1));
        device_->copy(in_, in.data(), bytes_);
        device_->copy(out_, out.data(), bytes_);
        ddp::Work work = start(nccl_.world(), one, in_, out_, Device::Cuda, {.stream = device_->stream()});
        work.wait();
        std::vector<std::byte> device_in(bytes_), device_out(bytes_);
        device_->copy(device_in.data(), in_, bytes_);
        device_->copy(device_out.data(), out_, bytes_);
        start(native_.world(), one, in.data(), out.data(), Device::Cpu, {}).wait();
        compare(one, "input", device_in, in);
        compare(one, "output", device_out, out);
        work.wait_host();  // so that it is not in flight when the group ends, which would abort the communicator
        ++compared_;
    }
    [[nodiscard]] int compared() const { return compared_; }

private:
    void compare(const Case& one, const char* name, const std::vector<std::byte>& device,
                 const std::vector<std::byte>& host) const {
        if (device == host) return;
        std::size_t at = 0;
        while (device[at] == host[at]) ++at;
        throw std::runtime_error(fmt::format("rank {}: {}: the {} differs in byte {}: {:02x}, native {:02x}",
                                             nccl_.rank(), one.text(), name, at, static_cast<unsigned>(device[at]),
                                             static_cast<unsigned>(host[at])));
    }

    Context& nccl_;
    Context& native_;
    const std::unique_ptr<ddp::detail::DeviceAccess> device_;
    std::size_t elements_ = 0;
    std::size_t bytes_ = 0;
    void* in_ = nullptr;
    void* out_ = nullptr;
    int compared_ = 0;
};

void equal(Context& context, char** counts) {
    Counts all;
    for (; *counts != nullptr; ++counts) all.push_back(std::stoul(*counts));
    Context native = ddp::init_from_env({.backend = ddp::Backend::Native});
    Comparison comparison(context, native, *std::ranges::max_element(all));
    for (const std::size_t count : all) {
        for (const DType type : kTypes) {
            for (const ReduceOp op : kOps) {
                for (const char* what : kReductions)
                    if (has(type, op)) comparison.run({what, type, op, count});
            }
            for (const char* what : kMoves) comparison.run({what, type, ReduceOp::Sum, count});
        }
    }
    if (context.rank() == 0) print(fmt::format("{} comparisons", comparison.compared()));
}

std::string reported(int rank) { return fmt::format("reported/{}", rank); }

void await_reports(Context& context, const std::vector<int>& without) {
    for (int rank = 0; rank < context.world_size(); ++rank)
        if (std::ranges::count(without, rank) == 0) (void)context.store().get(reported(rank), 2min);
}

/// Starts to sum a number of each rank on the device, and returns when `value` is the sum.
ddp::Work sum_on_device(ProcessGroup& group, ddp::detail::DeviceAccess& device, std::int32_t& value) {
    auto* const word = static_cast<std::int32_t*>(group.arena().allocate(sizeof value));
    device.copy(word, &value, sizeof value);
    ddp::Work work = group.all_reduce(Buffer(word, 1, Device::Cuda), ReduceOp::Sum, {.stream = device.stream()});
    work.wait();
    device.copy(&value, word, sizeof value);
    return work;
}

/// Returns the sum of a number of each rank, by the device.
std::int32_t device_sum(ProcessGroup& group, ddp::detail::DeviceAccess& device, std::int32_t value) {
    sum_on_device(group, device, value).wait_host();  // not in flight any more when the group ends
    return value;
}

void groups(Context& context) {
    const auto device = ddp::detail::open_device(context.local_rank());
    ProcessGroup& world = context.world();
    const int size = context.world_size(), rank = context.rank();
    const auto all = size * (size - 1) / 2;
    require(device_sum(world, *device, rank) == all, "the world's sum is wrong");
    const auto half = world.split(rank % 2, rank, "half");
    require(device_sum(*half, *device, rank) == all / 2 + (rank % 2 == 0 ? -size / 4 : size / 4),
            "a half's sum is wrong");
    const auto quarter = half->split(half->rank() % 2, -rank, "quarter");
    require(quarter->rank() == quarter->size() - 1 - rank / 4, "the quarter is in another order");
    require(device_sum(*quarter, *device, 1) == quarter->size(), "a quarter's sum is wrong");

    std::vector<std::int32_t> host{rank, 1};  // over the control group
    world.all_reduce(host, ReduceOp::Sum).wait();
    require(host == std::vector<std::int32_t>{all, size}, "the sum in host memory is wrong");
    world.barrier().wait();
    world.barrier({.stream = device->stream()}).wait();
    require(context.agree(true) && !context.agree(rank != 1), "agree() is wrong");

    const std::size_t large = 300'000;  // more than the native backend stores of a message
    auto* const sent = static_cast<std::int32_t*>(world.arena().allocate(large * 4));
    auto* const received = static_cast<std::int32_t*>(world.arena().allocate(large * 4));
    for (const std::size_t count : {std::size_t{1}, large}) {
        const std::vector<std::int32_t> own(count, rank);
        device->copy(sent, own.data(), count * 4);
        ddp::TransferBatch batch = world.batch();
        batch.send(ConstBuffer(sent, count, Device::Cuda), (rank + 1) % size);
        batch.recv(Buffer(received, count, Device::Cuda), (rank + size - 1) % size);
        batch.start({.stream = device->stream()}).wait();
        std::vector<std::int32_t> got(count);
        device->copy(got.data(), received, count * 4);
        require(got == std::vector<std::int32_t>(count, (rank + size - 1) % size), "a message is wrong");
    }

    const std::vector<int> last{size - 1};
    if (rank != size - 1) {
        const auto rest = world.shrink(last);
        require(device_sum(*rest, *device, rank) == all - (size - 1), "the sum after a shrink is wrong");
        context.store().set(reported(rank), "yes");
    }
    await_reports(context, last);  // NCCL ends a communicator when all its ranks end it
}

void brief(Context& context) {
    const auto device = ddp::detail::open_device(context.local_rank());
    for (int i = 0; i < 30; ++i) {
        const auto group = context.world().split(0, context.rank(), "brief");
        std::int32_t value = 1;
        (void)sum_on_device(*group, *device, value);
        require(value == group->size(), "the sum is wrong");
    }
}

void undeclared(Context& context) {
    ProcessGroup& world = context.world();
    constexpr std::size_t kCount = 4;
    auto* const data = static_cast<float*>(world.arena().allocate(kCount * sizeof(float)));
    const Buffer device(data, kCount, Device::Cuda), wrong(data, kCount);
    const auto show = [](const char* call, const std::function<void()>& made) {
        try {
            made();
            print(fmt::format("{}: no error", call));
        } catch (const ddp::Error& error) {
            print(fmt::format("{}: {}", call, error.what()));
        }
    };
    show("all_reduce", [&] { world.all_reduce(wrong, ReduceOp::Sum).wait(); });
    show("all_gather", [&] { world.all_gather(device, wrong).wait(); });
    show("send", [&] { world.batch().send(wrong, 0).recv(wrong, 0).start().wait(); });
    show("coalesced", [&] { ddp::all_reduce_coalesced(world, {wrong}, ReduceOp::Sum); });
    show("weighted_mean", [&] { (void)ddp::weighted_mean(world, wrong, 1); });
    ddp::GradientReducer reducer(world, {{"weights", kCount}});
    show("sync_parameters", [&] { reducer.sync_parameters({wrong}); });
    show("verify_parameters", [&] { reducer.verify_parameters({wrong}); });
    show("bind", [&] { reducer.bind(0, wrong); });
    ddp::GradientReducer host(world, {{"weights", kCount}}, {.device = Device::Cpu});
    show("bind on the host", [&] { host.bind(0, wrong); });
    show("declared on the host", [&] { host.bind(0, device); });
    ddp::Checkpointer checkpointer("checkpoints", world);
    show("save", [&] { checkpointer.save(1, {{"weights", wrong}}); });
    const auto stream = ddp::detail::open_device(context.local_rank())->stream();
    std::vector<float> memory(kCount);
    show("stream", [&] { world.all_reduce(memory, ReduceOp::Sum, {.stream = stream}).wait(); });
    std::vector<float> gathered(kCount);
    world.all_gather(memory, gathered).wait();  // the group stays usable
}

/// A program's own kernel, on a stream of its own.
class SlowKernel {
public:
    SlowKernel(int device, std::chrono::milliseconds time) : cuda_(*ddp::detail::load_cuda()), device_(cuda_, device) {
        using Call = int(CUstream_st*, void (*)(void*), void*);
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        auto* const call = reinterpret_cast<Call*>(::dlsym(library, "ddp_fake_cuda_call"));
        require(call != nullptr, "this driver is not the fake");
        const ddp::detail::DeviceScope scope(device_);
        const auto run = [](void* argument) {
            std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<std::intptr_t>(argument)));
        };
        require(call(device_.stream(), run, reinterpret_cast<void*>(time.count())) == 0, "the fake refuses a kernel");
    }
    [[nodiscard]] ddp::Stream stream() const { return {device_.stream()}; }

private:
    const ddp::detail::CudaApi cuda_;
    ddp::detail::GroupDevice device_;
};

void free_beside_kernel(Context& context) {
    const auto device = ddp::detail::open_device(context.local_rank());
    auto part = context.world().split(0, context.rank(), "part");
    const SlowKernel kernel(context.local_rank(), 4s);
    part->abort("enough");
    part.reset();
    print(fmt::format("rank {}: sum {}", context.rank(), device_sum(context.world(), *device, 1)));
}

void abort_beside_world(Context& context) {
    const auto device = ddp::detail::open_device(context.local_rank());
    ProcessGroup& world = context.world();
    auto part = world.split(0, context.rank(), "part");
    if (context.rank() == 0) {
        const SlowKernel kernel(context.local_rank(), 3s);
        auto* const data = static_cast<float*>(part->arena().allocate(4));
        ddp::Work held = part->all_reduce(Buffer(data, 1, Device::Cuda), ReduceOp::Sum, {.stream = kernel.stream()});
        std::thread([&aborted = *part] {
            std::this_thread::sleep_for(500ms);  // the world's operation is on its way then
            aborted.abort("enough");
        }).detach();
        print(fmt::format("rank 0: sum {}", device_sum(world, *device, 1)));
        try {
            held.wait_host();
        } catch (const ddp::Error& error) {
            print(fmt::format("rank 0: {}", error.what()));
        }
        return;
    }
    std::this_thread::sleep_for(4s);
    print(fmt::format("rank 1: sum {}", device_sum(world, *device, 1)));
    part->abort("enough");
}

void raise_in_loop(Context& context, char** argv) {
    ProcessGroup& world = context.world();
    auto* const data = static_cast<float*>(world.arena().allocate(4000));
    const std::string how = argv[3];
    for (int call = 1;; ++call) {
        const bool raises = call == 5 && context.rank() == std::stoi(argv[2]);
        if (raises && how == "idle") throw std::runtime_error("the loss is nan");
        std::optional<SlowKernel> kernel;
        if (raises && how == "slow") kernel.emplace(context.local_rank(), 3s);
        const ddp::Stream stream = kernel ? kernel->stream() : ddp::Stream{};
        ddp::Work work = world.all_reduce(Buffer(data, 1000, Device::Cuda), ReduceOp::Sum, {.stream = stream});
        if (raises) throw std::runtime_error("the loss is nan");
        work.wait_host();
    }
}

/// Makes stderr a full pipe that no process reads.
void mute_stderr() {
    int ends[2] = {};
    require(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0, "no pipe");
    const std::vector<char> text(65536, '.');
    while (::write(ends[1], text.data(), text.size()) > 0) {
    }
    require(::fcntl(ends[1], F_SETFL, 0) == 0 && ::dup2(ends[1], STDERR_FILENO) == STDERR_FILENO, "no stderr");
}

void loop(Context& context, char** argv) {
    std::signal(SIGTERM, SIG_IGN);
    const std::chrono::milliseconds timeout(std::stoi(argv[2]));
    const std::string extra = argv[3] == nullptr ? "" : argv[3];
    if (extra == "mute" && context.rank() == std::stoi(argv[4])) mute_stderr();
    const int absent = extra == "absent" ? std::stoi(argv[4]) : -1;
    const int absent_call = extra == "absent" ? std::stoi(argv[5]) : -1;
    ProcessGroup& world = context.world();
    auto* const data = static_cast<float*>(world.arena().allocate(4000));
    for (int call = 1;; ++call) {
        if (context.rank() == absent && call == absent_call) {
            await_reports(context, {absent});
            world.abort("the others have given up");  // else its end would wait for them
            return;
        }
        const auto begin = std::chrono::steady_clock::now();
        try {
            world.all_reduce(Buffer(data, 1000, Device::Cuda), ReduceOp::Sum, {.timeout = timeout}).wait_host();
        } catch (const ddp::Error& error) {
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            print(fmt::format("rank {}: {} {} call {}, {:.1f} s | {}", context.rank(), static_cast<int>(error.code()),
                              error.culprits(), call, took.count(), error.what()));
            context.store().set(reported(context.rank()), "yes");
            std::vector<int> silent = error.culprits();
            silent.push_back(absent);
            // Without this a rank that reports later would take the end of this one for the cause.
            if (extra != "hasty") await_reports(context, silent);
            std::_Exit(0);  // after a failure not even the end of the group has to return
        }
    }
}

int run(char** argv) {
    const std::string mode = argv[1];
    Context context = ddp::init_from_env({.backend = mode == "auto" ? ddp::Backend::Auto : ddp::Backend::Nccl});
    if (mode == "equal") equal(context, argv + 2);
    if (mode == "groups") groups(context);
    if (mode == "brief") brief(context);
    if (mode == "auto") print(fmt::format("rank {}: {}", context.rank(), to_string(context.world().backend())));
    if (mode == "undeclared") undeclared(context);
    if (mode == "loop") loop(context, argv);
    if (mode == "raise") raise_in_loop(context, argv);
    if (mode == "free") free_beside_kernel(context);
    if (mode == "abort") abort_beside_world(context);
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 2;
    try {
        return run(argv);
    } catch (const std::exception& error) {
        fmt::print(stderr, "nccl_job: {}\n", error.what());
        return EXIT_FAILURE;
    }
}
