// Checkpointer on device memory: the same files as on the host, with copies behind the caller's stream.

#include <algorithm>
#include <future>
#include <numeric>
#include <string>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/nccl/group.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "worker_lib/src/checkpoint/memory_pieces.hpp"

using namespace ddp;
using namespace ddp::test;
using Catch::Contains;
using Names = std::set<std::string>;

namespace {

/// A model of several tensors. On the fake GPU device memory is host memory, so each of them can be either.
struct State {
    explicit State(float start = 0) {
        std::iota(weights.begin(), weights.end(), start);
        std::fill(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(start + 1));
        steps = static_cast<std::int64_t>(start);
    }
    [[nodiscard]] std::vector<NamedBuffer> buffers(Device weights_at, Device bytes_at) {
        return {{"weights", {weights.data(), weights.size(), weights_at}},
                {"nothing", {static_cast<float*>(nullptr), 0, weights_at}},
                {"steps", steps},
                {"bytes", {bytes.data(), bytes.size(), bytes_at}}};
    }
    bool operator==(const State&) const = default;
    std::vector<float> weights = std::vector<float>(1001);
    std::int64_t steps = 0;
    std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(77);
};

/// A group of a Context's kind, on the fake.
struct Ranks : FakeGroup {
    explicit Ranks(int ranks) : FakeGroup(ranks) { has_control_group = true; }
};

/// Returns the file that a native group of as many ranks writes.
std::string file_of_cpu(int ranks, std::uint64_t step, const std::vector<NamedBuffer>& state) {
    const TemporaryDirectory directory;
    ddp::testing::run_ranks({.ranks_per_node = {ranks}},
                            [&](Context& context) { Checkpointer(directory.path(), context).save(step, state); });
    return read_file(directory.path() / ("step-" + std::to_string(step) + ".safetensors"));
}

std::vector<std::byte> bytes_of(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
    return bytes;
}

/// Saves `state` on a group of one rank while a gate holds the stream, until `meanwhile` has returned. The file must
/// not appear before.
Outcome save_behind_gate(Ranks& ranks, const std::filesystem::path& directory, State& state, bool async,
                         const std::function<void(ProcessGroup&)>& meanwhile, CUstream stream) {
    ProcessGroup group = ranks.world(0);
    Checkpointer checkpointer(directory, group);
    const auto gate = ranks.gpu.close_gate(stream);
    auto saving = std::async(std::launch::async, [&] {
        return outcome_of([&] {
            const auto buffers = state.buffers(Device::Cuda, Device::Cuda);
            async ? checkpointer.save_async(4, buffers, {stream}) : checkpointer.save(4, buffers, {stream});
            checkpointer.wait();
        });
    });
    const bool waits = eventually([&] { return ranks.gpu.counts().copies > 0; });
    meanwhile(group);
    gate->store(true);
    Outcome outcome = saving.get();
    if (!waits) outcome = {true, ErrorCode::System, "no copy was queued"};
    return outcome;
}

}  // namespace

TEST_CASE("nccl: a checkpoint of device memory is the file of the host, and loads on both", "[nccl][checkpoint]") {
    const auto [weights_at, bytes_at] =
        GENERATE(std::pair{Device::Cuda, Device::Cuda}, std::pair{Device::Cuda, Device::Cpu},
                 std::pair{Device::Cpu, Device::Cuda}, std::pair{Device::Cpu, Device::Cpu});
    const int size = GENERATE(1, 3);
    const bool async = GENERATE(false, true);
    CAPTURE(static_cast<int>(weights_at), static_cast<int>(bytes_at), size, async);
    const TemporaryDirectory directory;
    Ranks ranks(size);
    require_success(ranks.run_worlds([&, weights = weights_at, bytes = bytes_at](ProcessGroup& group) {
        State state(group.rank() == 0 ? 3.0F : 77.0F);
        Checkpointer checkpointer(directory.path(), group);
        const auto buffers = state.buffers(weights, bytes);
        async ? checkpointer.save_async(12, buffers) : checkpointer.save(12, buffers);
        if (checkpointer.latest() != std::optional<std::uint64_t>(12)) throw Error(ErrorCode::Io, "no checkpoint");
        State other;
        checkpointer.load(12, other.buffers(weights, bytes));
        if (other != State(3)) throw Error(ErrorCode::Io, "other values");
    }));
    require_nothing_left(ranks);
    State state(3);
    const std::string file = read_file(directory.path() / "step-12.safetensors");
    CHECK(file == file_of_cpu(size, 12, state.buffers(Device::Cpu, Device::Cpu)));
    const auto on_the_host = ddp::testing::run_ranks({.ranks_per_node = {2}}, [&](Context& context) {
        State loaded;
        Checkpointer(directory.path(), context).load(12, loaded.buffers(Device::Cpu, Device::Cpu));
        return loaded == State(3);
    });
    CHECK(on_the_host == std::vector<bool>{true, true});
}

TEST_CASE("nccl: a checkpoint of the host loads into device memory of every rank", "[nccl][checkpoint]") {
    const TemporaryDirectory directory;
    State saved(5);
    ddp::testing::run_ranks({}, [&](Context& context) {
        Checkpointer(directory.path(), context).save(2, saved.buffers(Device::Cpu, Device::Cpu));
    });
    Ranks ranks(3);
    require_success(ranks.run_worlds([&](ProcessGroup& group) {
        State state;
        Checkpointer(directory.path(), group).load(2, state.buffers(Device::Cuda, Device::Cuda));
        if (state != State(5)) throw Error(ErrorCode::Io, "other values");
    }));
    require_nothing_left(ranks);
}

TEST_CASE("nccl: memory of every length around the pieces goes through pinned memory whole", "[nccl][checkpoint]") {
    constexpr std::size_t kPiece = 64;
    FakeGpu gpu;
    std::vector<std::vector<std::byte>> tensors;
    std::vector<detail::MemoryRange> ranges;
    int on_device = 0;  // pieces
    for (const std::size_t count : {0, 1, 63, 64, 65, 127, 128, 129, 640, 2, 0, 64, 1}) {
        tensors.push_back(bytes_of(count));
        const bool on_host = tensors.size() % 3 == 1;
        on_device += on_host ? 0 : static_cast<int>((count + kPiece - 1) / kPiece);
        ranges.push_back({tensors.back().data(), count, !on_host});
    }
    std::vector<std::vector<std::byte>> found(tensors.size());
    {
        detail::Staging staging(gpu.api().cuda, 0, kPiece, 20s);
        for (int round = 0; round < 2; ++round) {
            for (auto& target : found) target.clear();
            const int before = gpu.counts().copies;
            int seen = 0;
            bool ahead = true;
            detail::read_memory(ranges, &staging,
                                [&](std::size_t range, std::size_t offset, std::span<const std::byte> values) {
                                    CHECK(found[range].size() == offset);
                                    found[range].insert(found[range].end(), values.begin(), values.end());
                                    seen += ranges[range].on_device ? 1 : 0;
                                    // The next copy runs while this piece is used.
                                    ahead = ahead && gpu.counts().copies - before == std::min(seen + 1, on_device);
                                });
            CHECK(seen == on_device);
            CHECK(ahead);
            CHECK(found == tensors);
        }
        for (auto& tensor : tensors) std::ranges::fill(tensor, std::byte{0xEE});
        for (std::size_t i = 0; i < ranges.size(); ++i) {
            for (std::size_t done = 0; done < ranges[i].bytes; done += kPiece) {
                const std::size_t bytes = std::min(kPiece, ranges[i].bytes - done);
                const detail::MemoryRange piece{ranges[i].data + done, bytes, ranges[i].on_device};
                detail::write_memory(piece, std::span(found[i]).subspan(done, bytes), &staging);
            }
        }
        staging.finish_writing();
        CHECK(found == tensors);
    }
    CHECK(gpu.counts().pinned == 0);
}

TEST_CASE("nccl: a state larger than both pieces is saved and loaded", "[nccl][checkpoint]") {
    const TemporaryDirectory directory;
    const std::size_t count = 2 * detail::Staging::kPieceBytes + 4;
    const auto saved = bytes_of(count);
    auto on_host = saved;
    const std::string expected = file_of_cpu(1, 1, {{"large", {on_host.data(), count}}});
    Ranks ranks(1);
    {
        ProcessGroup group = ranks.world(0);
        auto memory = saved;
        const std::vector<NamedBuffer> state{{"large", {memory.data(), count, Device::Cuda}}};
        Checkpointer checkpointer(directory.path(), group);
        checkpointer.save(1, state);
        CHECK(read_file(directory.path() / "step-1.safetensors") == expected);
        std::ranges::fill(memory, std::byte{0});
        checkpointer.load(1, state);
        CHECK(memory == saved);
        CHECK(ranks.gpu.counts().pinned == 2);
    }
    require_nothing_left(ranks);
}

TEST_CASE("nccl: a save takes the values that the work before it on the stream computes", "[nccl][checkpoint]") {
    const bool async = GENERATE(false, true);
    const TemporaryDirectory directory;
    Ranks ranks(1);
    const CUstream stream = ranks.gpu.make_stream();
    State state(1);
    State computed(9);
    computed.steps = state.steps;  // host memory, which no work on the stream computes
    Names early;
    const Outcome outcome = save_behind_gate(
        ranks, directory.path(), state, async,
        [&](ProcessGroup&) {
            early = directory.names();
            state = computed;  // what the work behind the gate would do
        },
        stream);
    CHECK(outcome.text == "");
    CHECK_FALSE(early.contains("step-4.safetensors"));
    CHECK(read_file(directory.path() / "step-4.safetensors") ==
          file_of_cpu(1, 4, computed.buffers(Device::Cpu, Device::Cpu)));
}

TEST_CASE("nccl: values that may come from an aborted operation are not saved", "[nccl][checkpoint]") {
    const bool async = GENERATE(false, true);
    const TemporaryDirectory directory;
    Ranks ranks(1);
    State state(1);
    const Outcome outcome = save_behind_gate(
        ranks, directory.path(), state, async, [](ProcessGroup& group) { group.abort("a rank is lost"); },
        ranks.gpu.make_stream());
    CHECK(outcome.code == ErrorCode::Aborted);
    CHECK_THAT(outcome.text, Contains("a rank is lost"));
    CHECK(directory.names().empty());
}

TEST_CASE("nccl: a save behind work that does not end has a deadline, and the next one works", "[nccl][checkpoint]") {
    const bool loads = GENERATE(false, true);
    const TemporaryDirectory directory;
    Ranks ranks(2);
    ranks.default_timeout = 2s;
    const std::array streams{ranks.gpu.make_stream(), ranks.gpu.make_stream()};
    require_success(ranks.run_worlds([&](ProcessGroup& group) {
        State state(6);
        const auto buffers = state.buffers(Device::Cuda, Device::Cuda);
        Checkpointer checkpointer(directory.path(), group);
        checkpointer.save(1, buffers);
        const CUstream stream = streams.at(static_cast<std::size_t>(group.rank()));
        const auto gate = ranks.gpu.close_gate(stream);
        const Outcome late = outcome_of(
            [&] { loads ? checkpointer.load(1, buffers, {stream}) : checkpointer.save(2, buffers, {stream}); });
        const std::string expected =
            (loads ? "cannot load checkpoint " + (directory.path() / "step-1.safetensors").string()
                   : "cannot save checkpoint " + (directory.path() / "step-2.safetensors").string()) +
            ": a copy of 4004 bytes on CUDA device 0, or an operation queued before it, has not finished in 2 s";
        if (!late.failed || late.code != ErrorCode::System || !late.text.starts_with(expected))
            throw Error(ErrorCode::System, "unexpected: " + late.text);
        group.barrier().wait();
        if (directory.names() != Names{"step-1.safetensors"}) throw Error(ErrorCode::System, "other files");
        gate->store(true);
        if (group.rank() == 0 && !eventually([&] { return ranks.gpu.advance(stream); }))
            throw Error(ErrorCode::System, "the stream does not go on");
        checkpointer.save(3, buffers, {stream});
    }));
    CHECK(directory.names() == Names{"step-1.safetensors", "step-3.safetensors"});
    CHECK(ranks.gpu.counts().pinned == 2);  // left to the copy that had not ended
}

TEST_CASE("nccl: a copy that CUDA refuses is an error on all ranks, and leaves no file", "[nccl][checkpoint]") {
    const bool no_room = GENERATE(false, true);
    const bool async = GENERATE(false, true);
    const TemporaryDirectory directory;
    Ranks ranks(2);
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        Checkpointer checkpointer(directory.path(), group);
        State state;
        const auto buffers = state.buffers(Device::Cuda, Device::Cpu);
        group.barrier().wait();
        (no_room ? ranks.gpu.refuses_memory : ranks.gpu.refuses_copies) = true;
        async ? checkpointer.save_async(1, buffers) : checkpointer.save(1, buffers);
    });
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.code == ErrorCode::System);
        CHECK_THAT(outcome.text,
                   Contains("cannot save checkpoint " + (directory.path() / "step-1.safetensors").string()) &&
                       Contains(no_room ? "no room for 4004 bytes of pinned host memory" : "cuMemcpyAsync"));
    }
    CHECK(directory.names().empty());
    require_nothing_left(ranks);
}

TEST_CASE("nccl: device memory and streams that a checkpoint cannot use are refused on every rank",
          "[nccl][checkpoint]") {
    const int what = GENERATE(0, 1, 2, 3);
    const bool loads = GENERATE(false, true);
    CAPTURE(what, loads);
    const TemporaryDirectory directory;
    Ranks ranks(2);
    std::vector<State> states(2);
    const CUstream captured = ranks.gpu.make_stream();
    ranks.gpu.capture(captured, true);
    for (State& state : states) {
        if (what == 0) ranks.gpu.other_memory[state.bytes.data()] = -1;
        if (what == 1) ranks.gpu.other_memory[state.bytes.data()] = 5;
    }
    const auto outcomes = ranks.run_worlds([&](ProcessGroup& group) {
        Checkpointer checkpointer(directory.path(), group);
        const bool first = group.rank() == 0;
        State& state = states[static_cast<std::size_t>(group.rank())];
        // Rank 1 passes host memory where rank 0 passes device memory.
        const auto buffers = state.buffers(Device::Cuda, what == 3 && !first ? Device::Cpu : Device::Cuda);
        const Stream stream{what == 2 ? captured : nullptr};
        loads ? checkpointer.load(1, buffers, stream) : checkpointer.save(1, buffers, stream);
    });
    const std::array<std::string, 4> texts{
        "cannot checkpoint 'bytes': the buffer says Device::Cuda, but CUDA knows no memory there",
        "cannot checkpoint 'bytes': the buffer is memory of CUDA device 5; this rank uses CUDA device ",
        "cannot checkpoint device memory: its stream is being captured into a CUDA graph",
        "has tensor 3 'bytes' u8[77] on cuda, but rank 1"};
    for (const Outcome& outcome : outcomes) {
        CHECK_THAT(outcome.text, Contains(texts.at(static_cast<std::size_t>(what))));
        // In case 1 the ranks have other devices, and so other texts.
        CHECK(outcome.code == (what == 1 || what == 3 ? ErrorCode::Mismatch : ErrorCode::InvalidArgument));
    }
    CHECK(directory.names().empty());
    CHECK(ranks.gpu.counts().broken_captures == 0);
}

TEST_CASE("nccl: a save ends no capture of another thread", "[nccl][checkpoint]") {
    const TemporaryDirectory directory;
    Ranks ranks(1);
    ProcessGroup group = ranks.world(0);
    State state;
    group.barrier().wait();
    {
        Checkpointer checkpointer(directory.path(), group);
        ranks.gpu.capturing = true;
        checkpointer.save(1, state.buffers(Device::Cuda, Device::Cuda));
        checkpointer.load(1, state.buffers(Device::Cuda, Device::Cuda));
    }
    ranks.gpu.capturing = false;
    CHECK(ranks.gpu.counts().broken_captures == 0);
}
