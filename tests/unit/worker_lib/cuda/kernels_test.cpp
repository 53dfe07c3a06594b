// The kernels of the reducer against the host's functions, bit for bit, and what their launcher makes of lists of
// chunks. The driver here runs each launch at once: the source compiled as C++, or the PTX that the library contains.

#include "worker_lib/src/cuda/kernels.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/word_hash.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/context.hpp"
#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "tests/fake_gpu/kernel_registry.hpp"
#include "tests/unit/worker_lib/cuda/kernel_cases.hpp"
#include "tests/unit/worker_lib/cuda/ptx_machine.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using namespace ddp;
using namespace ddp::abi;
using Catch::Matchers::Contains;
using ddp::detail::CopyChunk;
using ddp::detail::FeedbackChunk;
using ddp::detail::GradientKernels;
using ddp::detail::GroupDevice;
using ddp::testing::Bytes;
using ddp::testing::kConversions;
using ddp::testing::make_values;
using ddp::testing::on_host;

namespace {

// ---- a driver that runs kernels

struct Driver {
    std::vector<std::string> launches;  ///< the names of the kernels
    std::set<const void*> modules;
    int loads = 0;
    std::string missing_kernel;  ///< no function has this name
    bool executes_ptx = false;   ///< else what is compiled as C++
    bool refuses_module = false;
    bool refuses_launch = false;
};
Driver driver;
thread_local int contexts_of_thread = 0;  // pushed ones

/// For every call that GroupDevice makes and that does not matter here.
template <typename... Arguments>
void accept(CUresult (*&member)(Arguments...)) {
    member = [](Arguments...) { return CUDA_SUCCESS; };
}

CUresult load(CUmodule* module, const void* image, unsigned options, CUjit_option* names, void** values) {
    if (contexts_of_thread == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (driver.refuses_module) {
        for (unsigned i = 0; i < options; ++i) {
            if (names[i] == CU_JIT_ERROR_LOG_BUFFER) std::strcpy(static_cast<char*>(values[i]), "ptxas fatal: line 3");
        }
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    ++driver.loads;
    driver.modules.insert(image);
    *module = static_cast<CUmodule>(const_cast<void*>(image));
    return CUDA_SUCCESS;
}

CUresult find(CUfunction* function, CUmodule, const char* name) {
    const auto* kernel = name == driver.missing_kernel ? nullptr : fake::find_kernel(name);
    *function = reinterpret_cast<CUfunction>(const_cast<fake::Kernel*>(kernel));
    return kernel != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned, CUstream, void** arguments, void**) {
    if (driver.refuses_launch || grid_x == 0) return CUDA_ERROR_INVALID_HANDLE;
    const auto& kernel = *reinterpret_cast<const fake::Kernel*>(function);
    driver.launches.emplace_back(kernel.name);
    std::size_t bytes = 0;
    const auto bound = kernel.bind(arguments, [&](auto argument) { bytes += argument.size(); });
    if (bytes > 4096) return CUDA_ERROR_INVALID_HANDLE;  // as before CUDA 12.1
    if (driver.executes_ptx) {
        static const testing::PtxMachine machine(detail::gradients_ptx());
        machine.run(kernel.name, grid_x, block_x, arguments);
        return CUDA_SUCCESS;
    }
    auto& place = fake::place_in_grid;
    place.grid_size = {grid_x, grid_y, grid_z};
    place.block_size = {block_x, block_y, block_z};
    // No thread needs another one, so any order of blocks and threads is right; not the usual one, to see that.
    for (place.block.x = grid_x; place.block.x-- > 0;) {
        for (place.thread.x = block_x; place.thread.x-- > 0;) bound();
    }
    return CUDA_SUCCESS;
}

CudaApi make_api(bool executes_ptx = false) {
    driver = {};
    driver.executes_ptx = executes_ptx;
    CudaApi api;
#define DDP_ACCEPT(member, ...) accept(api.member);
    DDP_CUDA_FUNCTIONS(DDP_ACCEPT)
#undef DDP_ACCEPT
    api.ctx_push_current = [](CUcontext) { return ++contexts_of_thread, CUDA_SUCCESS; };
    api.ctx_pop_current = [](CUcontext*) { return --contexts_of_thread, CUDA_SUCCESS; };
    api.module_load_data_ex = load;
    api.module_unload = [](CUmodule module) {
        return contexts_of_thread > 0 && driver.modules.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    };
    api.module_get_function = find;
    api.launch_kernel = launch;
    return api;
}

std::shared_ptr<GroupDevice> make_device(bool executes_ptx = false) {
    return std::make_shared<GroupDevice>(make_api(executes_ptx), 0);
}

// ---- values

/// Memory that begins `offset` elements behind an address that is a multiple of 64, with guard bytes around it.
class Memory {
public:
    Memory(const Bytes& content, DType type, std::size_t offset)
        : before_(offset * size_of(type)),
          bytes_(content.size()),
          memory_(content.size() + before_ + 2 * kGuard, kFill) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
        before_ += (kGuard - address % kGuard) % kGuard;
        std::copy(content.begin(), content.end(), data());
    }
    std::byte* data() { return memory_.data() + before_; }
    [[nodiscard]] Bytes content() { return {data(), data() + bytes_}; }
    [[nodiscard]] bool guards_are_whole() {
        const auto is_fill = [](std::byte byte) { return byte == kFill; };
        return std::all_of(memory_.data(), data(), is_fill) &&
               std::all_of(data() + bytes_, memory_.data() + memory_.size(), is_fill);
    }

private:
    static constexpr std::size_t kGuard = 64;
    static constexpr std::byte kFill{0xA5};
    std::size_t before_;
    std::size_t bytes_;
    Bytes memory_;
};

/// Sizes around those of a vector, a round of a block and a tile.
const std::vector<std::size_t> kCounts{1,    2,    3,    7,    8,    9,    31,   63,   255,  256,  257,   1023,
                                       1024, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 12291, 40001};

}  // namespace

TEST_CASE("copies have the bits of the host's, for all types, sizes, alignments and factors", "[cuda][kernels]") {
    const auto conversion = GENERATE(from_range(kConversions));
    const double factor = GENERATE(1.0, 1.0 / 3, 0.125, -1e-30, 1e30);
    const bool executes_ptx = GENERATE(false, true);
    CAPTURE(executes_ptx);
    const auto device = make_device(executes_ptx);
    const auto kernels = GradientKernels::of(*device);
    const auto [from_type, to_type] = conversion;
    CAPTURE(to_string(from_type), to_string(to_type), factor);
    std::string wrong;
    for (const std::size_t count : kCounts) {
        if (executes_ptx && count > 10 && count % 4096 > 3 && count != 12291) continue;  // it takes long
        const Bytes values = make_values(count, from_type, static_cast<unsigned>(count));
        const Bytes right = on_host(values, conversion, factor);
        for (const auto& [from_offset, to_offset] :
             std::vector<std::pair<std::size_t, std::size_t>>{{0, 0}, {1, 1}, {0, 1}, {1, 0}, {3, 7}, {6, 2}}) {
            Memory from(values, from_type, from_offset);
            Memory to(Bytes(right.size(), std::byte{0x77}), to_type, to_offset);
            const CopyChunk chunk{to.data(), from.data(), count};
            kernels->copy(std::span(&chunk, 1), from_type, to_type, factor, nullptr);
            const auto at = testing::first_difference(to.content(), right, to_type);
            if (at >= 0 || !to.guards_are_whole() || from.content() != values)
                wrong += fmt::format(" {} elements at {}, {}: element {};", count, from_offset, to_offset, at);
        }
    }
    CHECK(wrong == "");
}

TEST_CASE("every 16-bit float is widened as the host does, and survives a copy", "[cuda][kernels]") {
    const auto type = GENERATE(DType::F16, DType::BF16);
    const bool executes_ptx = GENERATE(false, true);
    CAPTURE(executes_ptx);
    const auto device = make_device(executes_ptx);
    const auto kernels = GradientKernels::of(*device);
    std::vector<std::uint16_t> all(65536);
    std::iota(all.begin(), all.end(), std::uint16_t{0});
    Bytes values(all.size() * 2);
    std::memcpy(values.data(), all.data(), values.size());
    for (const DType to_type : {DType::F32, type}) {
        Bytes to(all.size() * size_of(to_type));
        const CopyChunk chunk{to.data(), values.data(), all.size()};
        kernels->copy(std::span(&chunk, 1), type, to_type, 1, nullptr);
        CHECK(testing::first_difference(to, on_host(values, {type, to_type}, 1), to_type) == -1);
    }
}

TEST_CASE("a buffer is scaled in place", "[cuda][kernels]") {
    const auto type = GENERATE(DType::F64, DType::F32, DType::F16, DType::BF16);
    const std::size_t offset = GENERATE(0u, 1u, 5u);
    const bool executes_ptx = GENERATE(false, true);
    CAPTURE(executes_ptx);
    const auto device = make_device(executes_ptx);
    const auto kernels = GradientKernels::of(*device);
    const Bytes values = make_values(20011, type, 7);
    Memory memory(values, type, offset);
    const CopyChunk chunk{memory.data(), memory.data(), 20011};
    kernels->copy(std::span(&chunk, 1), type, type, 0.3, nullptr);
    CHECK(testing::first_difference(memory.content(), on_host(values, {type, type}, 0.3), type) == -1);
    CHECK(memory.guards_are_whole());
}

TEST_CASE("lists of any length are cut into launches, and chunks of any size are copied once", "[cuda][kernels]") {
    constexpr std::size_t kMax = 145;
    static_assert(kMax == detail::ChunkTable<CopyChunk>::kMaxChunks);
    const std::size_t chunks = GENERATE(0u, 1u, 2u, 3u, 100u, 144u, 145u, 146u, 290u, 500u);
    const std::size_t empty_every = GENERATE(1u, 4u, 1000u);  // 1: all are empty
    CAPTURE(chunks, empty_every);
    const bool executes_ptx = GENERATE(false, true);
    if (executes_ptx && chunks > 146) return;  // it takes long
    CAPTURE(executes_ptx);
    const auto device = make_device(executes_ptx);
    const auto kernels = GradientKernels::of(*device);
    std::mt19937 random(static_cast<unsigned>(chunks));
    std::vector<std::size_t> counts;
    for (std::size_t i = 0; i < chunks; ++i) {
        const std::size_t size = i % 7 == 0 ? random() % 20000 : random() % 40;
        counts.push_back(i % empty_every == empty_every - 1 ? 0 : 1 + size);
    }
    // Packed without gaps, so that the chunks have all alignments; doubled in place in a copy of what is packed.
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    std::vector<float> from(total);
    std::iota(from.begin(), from.end(), 1.0f);
    std::vector<float> to(total + 1, -1.0f);
    std::vector<CopyChunk> list;
    std::size_t at = 0;
    for (const std::size_t count : counts) {
        list.push_back({to.data() + at, from.data() + at, count});
        at += count;
    }
    std::shuffle(list.begin(), list.end(), random);
    kernels->copy(list, DType::F32, DType::F32, 2, nullptr);

    const auto full = static_cast<std::size_t>(std::ranges::count_if(counts, [](auto count) { return count != 0; }));
    CHECK(driver.launches == std::vector<std::string>((full + kMax - 1) / kMax, "ddp_copy_f32"));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < total; ++i) wrong += to[i] != 2 * from[i] ? 1 : 0;
    CHECK(wrong == 0);
    CHECK(to.back() == -1);
}

TEST_CASE("a chunk of more elements than 32 bits can count is divided into tiles", "[cuda][kernels]") {
    static unsigned blocks = 0;
    CudaApi api = make_api();
    api.launch_kernel = [](CUfunction, unsigned grid_x, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           CUstream, void**, void**) { return blocks = grid_x, CUDA_SUCCESS; };
    const auto kernels = GradientKernels::of(GroupDevice(api, 0));
    const CopyChunk chunk{nullptr, nullptr, (std::uint64_t{1} << 34) + 1};
    kernels->copy(std::span(&chunk, 1), DType::F16, DType::F16, 1, nullptr);
    CHECK(blocks == (1u << 21) + 1);  // of 8192 elements
}

namespace {

/// The gradients of a step, before and after compress() has prepared them for sending, and what it has sent.
struct Step {
    std::vector<float> gradient;
    std::vector<float> sum;
    std::vector<float> sent;
};

/// Runs compress() with error feedback on one rank, for several steps of one gradient. A single rank gets back what it
/// sends.
std::vector<Step> compressed_on_host(DType wire_type, std::size_t count, int steps) {
    return testing::run_ranks({.ranks_per_node = {1}}, [&](Context& context) {
        const auto hook = compress(wire_type, {.error_feedback = true});
        const BucketPlan plan{{{DType::F32, count * sizeof(float), {{0, 0}}}}};
        hook->prepare(context.world(), plan);
        std::vector<Step> done;
        for (int step = 0; step < steps; ++step) {
            const Bytes bytes = make_values(count, DType::F32, static_cast<unsigned>(100 + step));
            std::vector<float> values(count);
            std::memcpy(values.data(), bytes.data(), bytes.size());
            Step one{.gradient = values, .sum = {}, .sent = {}};
            const GradBucket::Gradient gradient{0, Buffer(values)};
            const GradBucket bucket{.last = true, .buffer = Buffer(values), .gradients = std::span(&gradient, 1)};
            hook->launch(bucket).wait();
            one.sum = values;
            hook->complete(bucket);
            one.sent = values;
            done.push_back(std::move(one));
        }
        hook->release();
        return done;
    })[0];
}

Bytes bytes_of(const std::vector<float>& values) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

}  // namespace

TEST_CASE("error feedback has the bits of compress(), for several steps", "[cuda][kernels]") {
    const auto wire_type = GENERATE(DType::F16, DType::BF16);
    const std::size_t count = GENERATE(1u, 5u, 4096u, 12291u);
    const auto offsets = GENERATE(std::array<std::size_t, 3>{0, 0, 0}, std::array<std::size_t, 3>{1, 1, 1},
                                  std::array<std::size_t, 3>{4, 2, 4}, std::array<std::size_t, 3>{0, 0, 1},
                                  std::array<std::size_t, 3>{3, 3, 2});
    CAPTURE(to_string(wire_type), count, offsets);
    const bool executes_ptx = GENERATE(false, true);
    CAPTURE(executes_ptx);
    const auto device = make_device(executes_ptx);
    const auto kernels = GradientKernels::of(*device);
    constexpr int kSteps = 4;
    Memory residual(Bytes(count * sizeof(float)), DType::F32, offsets[2]);  // zeros
    for (const Step& right : compressed_on_host(wire_type, count, kSteps)) {
        Memory gradient(bytes_of(right.gradient), DType::F32, offsets[0]);
        Memory wire(Bytes(count * 2, std::byte{0x77}), wire_type, offsets[1]);
        const FeedbackChunk chunk{reinterpret_cast<float*>(gradient.data()), wire.data(),
                                  reinterpret_cast<float*>(residual.data()), count};
        kernels->feed_back(std::span(&chunk, 1), wire_type, nullptr);
        CHECK(testing::first_difference(gradient.content(), bytes_of(right.sum), DType::F32) == -1);
        const Bytes sent = on_host(wire.content(), {wire_type, DType::F32}, 1);
        CHECK(testing::first_difference(sent, bytes_of(right.sent), DType::F32) == -1);
        CHECK((gradient.guards_are_whole() && wire.guards_are_whole() && residual.guards_are_whole()));
    }
}

TEST_CASE("a seal zeroes the memory of a group that was given up, and nothing else", "[cuda][kernels]") {
    const std::size_t bytes = GENERATE(0u, 1u, 15u, 16u, 17u, 100u, 4096u, 300'001u);
    const std::size_t offset = GENERATE(0u, 1u, 15u);
    const std::uint32_t given_up = GENERATE(0u, 1u, 0x80000000u);
    CAPTURE(bytes, offset, given_up);
    const bool executes_ptx = GENERATE(false, true);
    CAPTURE(executes_ptx);
    const auto device = make_device(executes_ptx);
    const auto kernels = GradientKernels::of(*device);
    const Bytes content(bytes, std::byte{0x3C});
    Memory memory(content, DType::U8, offset);
    std::array<std::uint32_t, 3> step_ok{7, 7, 7};
    kernels->seal(memory.data(), bytes, detail::device_pointer(&given_up), detail::device_pointer(&step_ok[1]),
                  nullptr);
    CHECK(memory.content() == (given_up != 0 ? Bytes(bytes) : content));
    CHECK(memory.guards_are_whole());
    CHECK(step_ok == std::array<std::uint32_t, 3>{7, given_up != 0 ? 0u : 7u, 7});
}

TEST_CASE("a hash depends on every byte and on its place, not on the address or the launch", "[cuda][kernels]") {
    const bool executes_ptx = GENERATE(false, true);
    const std::size_t bytes = GENERATE(0u, 1u, 7u, 8u, 9u, 4098u, 20'005u);
    CAPTURE(executes_ptx, bytes);
    const auto device = make_device(executes_ptx);
    const auto kernels = GradientKernels::of(*device);
    const auto hash = [&](Memory memory) {
        std::uint64_t sum = 1000;
        kernels->hash(memory.data(), bytes, detail::device_pointer(&sum), nullptr);
        return sum - 1000;
    };
    Bytes content(bytes);
    std::mt19937 random(1);
    for (std::byte& byte : content) byte = static_cast<std::byte>(random());
    ddprun::WordHash64 on_host;
    on_host.add(content);
    const std::uint64_t right = on_host.value();
    for (const std::size_t offset : {0, 1, 2, 4, 8}) CHECK(hash(Memory(content, DType::U8, offset)) == right);
    if (bytes == 0) return;
    for (int i = 0; i < 20; ++i) {
        Bytes other = content;
        other[random() % bytes] ^= std::byte{1} << (random() % 8);
        CHECK(hash(Memory(other, DType::U8, 0)) != right);
    }
    if (bytes < 16) return;
    Bytes other = content;
    std::swap_ranges(other.begin(), other.begin() + 8, other.begin() + 8);
    CHECK(hash(Memory(other, DType::U8, 0)) != right);
}

TEST_CASE("the library contains the PTX of every kernel that is compiled as C++", "[cuda][kernels]") {
    const std::string ptx = detail::gradients_ptx();
    CHECK_THAT(ptx, Contains("\n.version 7.0\n") && Contains("\n.target sm_80\n"));
    const auto names = testing::PtxMachine(ptx).kernels();
    CHECK(names.size() == 12);
    for (const std::string& name : names) {
        CAPTURE(name);
        CHECK(fake::find_kernel(name) != nullptr);
    }
    CHECK(ptx.ends_with("}\n"));
}

TEST_CASE("the machine that executes PTX refuses what it does not know", "[cuda][kernels]") {
    const auto kernel = [](const std::string& line) {
        return "//\n.visible .entry k(\n.param .u64 k_param_0\n)\n{\n" + line + "\nret;\n}\n";
    };
    const auto run = [&](const std::string& line) {
        std::array<std::uint64_t, 2> words{1, 2};
        void* pointer = words.data();
        const std::array<void*, 1> arguments{&pointer};
        testing::PtxMachine(kernel("ld.param.u64 %rd1, [k_param_0];\n" + line)).run("k", 1, 1, arguments.data());
        return words;
    };
    CHECK(run("mov.u32 %r1, 5;\nst.global.u32 [%rd1+8], %r1;") == std::array<std::uint64_t, 2>{1, 5});
    CHECK(run("setp.lt.u32 %p1, 1, 2;\n@!%p1 bra $L;\nmov.u64 %rd2, 7;\nst.global.u64 [%rd1], %rd2;\n$L:")[0] == 7);
    CHECK(run("setp.lt.u32 %p1, 2, 1;\n@!%p1 bra $L;\nmov.u64 %rd2, 7;\nst.global.u64 [%rd1], %rd2;\n$L:")[0] == 1);
    CHECK_THROWS_WITH(run("fma.rn.f32 %f1, %f1, %f1, %f1;"), Contains("fma.rn.f32"));
    CHECK_THROWS_WITH(run("mov.u32 %r1, %laneid;\nst.global.v3.u32 [%rd1], {%r1, %r1};"), Contains("v3"));
    CHECK_THROWS_WITH(run("mov.u64 %rd2, symbol;"), Contains("symbol"));
    CHECK_THROWS_WITH(run("ld.global.v2.u64 {%rd2, %rd3}, [%rd1+8];"), Contains("2 times 8 bytes"));
}

TEST_CASE("kernels that do not load, and launches that fail, are errors that name the cause", "[cuda][kernels]") {
    const auto device = make_device();
    SECTION("the driver's compiler refuses them") {
        driver.refuses_module = true;
        CHECK_THROWS_WITH(GradientKernels::of(*device), Contains("CUDA device 0 cannot run the kernels") &&
                                                            Contains("compute capability 8.0") &&
                                                            Contains("ptxas fatal: line 3"));
    }
    SECTION("one is missing") {
        driver.missing_kernel = GENERATE("ddp_copy_f64", "ddp_copy_bf16_to_f32", "ddp_feed_back_f16",
                                         "ddp_feed_back_bf16", "ddp_seal", "ddp_hash");
        CHECK_THROWS_WITH(GradientKernels::of(*device), Contains("cuModuleGetFunction of " + driver.missing_kernel));
    }
    SECTION("a launch fails") {
        const auto kernels = GradientKernels::of(*device);
        driver.refuses_launch = true;
        const CopyChunk chunk{nullptr, nullptr, 1};
        CHECK_THROWS_WITH(kernels->copy(std::span(&chunk, 1), DType::F32, DType::F32, 1, nullptr),
                          Contains("cuLaunchKernel of ddp_copy_f32"));
        CHECK_THROWS_WITH(kernels->seal(nullptr, 0, 0, 0, nullptr), Contains("cuLaunchKernel of ddp_seal"));
    }
    CHECK(driver.modules.empty());
    CHECK(contexts_of_thread == 0);
}

TEST_CASE("kernels are loaded once for all users of a device, and unloaded after the last one", "[cuda][kernels]") {
    auto first_device = make_device();
    const auto second_device = std::make_shared<GroupDevice>(first_device->cuda(), 0);
    auto first = GradientKernels::of(*first_device);
    {
        const auto second = GradientKernels::of(*second_device);
        CHECK(second == first);
        first.reset();
        first_device.reset();
        CHECK(driver.loads == 1);
        CHECK(driver.modules.size() == 1);
        CHECK(contexts_of_thread == 0);
    }
    CHECK(driver.modules.empty());
    CHECK(GradientKernels::of(*second_device) != nullptr);
    CHECK(driver.loads == 2);
    CHECK(driver.modules.empty());
}
