// The fake driver keeps CUDA's rules: order of streams, events, memory, contexts, captures, kernels.

#include "tests/catch.hpp"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/fake_gpu/test_device.hpp"

namespace {

using namespace ddp::abi;
using ddp::detail::device_pointer;
using ddp::test::FakeCuda;
using ddp::test::Gate;
using ddp::test::ScopedContext;

const CudaApi& cuda() { return FakeCuda::instance().api; }
constexpr CUresult kInvalidValue{1};

CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    REQUIRE(cuda().stream_create_with_priority(&stream, flags, -1) == CUDA_SUCCESS);
    return stream;
}
CUevent new_event() {
    CUevent event = nullptr;
    REQUIRE(cuda().event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    return event;
}
CUevent recorded_on(CUstream stream) {
    CUevent event = new_event();
    REQUIRE(cuda().event_record(event, stream) == CUDA_SUCCESS);
    return event;
}
unsigned char* new_memory(std::size_t bytes) {
    CUdeviceptr memory = 0;
    REQUIRE(cuda().mem_alloc(&memory, bytes) == CUDA_SUCCESS);
    return reinterpret_cast<unsigned char*>(memory);
}
void fill(unsigned char* memory, unsigned char value, CUstream stream) {
    REQUIRE(cuda().memset_d8_async(device_pointer(memory), value, 1, stream) == CUDA_SUCCESS);
}
void copy(void* to, const void* from, std::size_t bytes, CUstream stream) {
    REQUIRE(cuda().memcpy_async(device_pointer(to), device_pointer(from), bytes, stream) == CUDA_SUCCESS);
}
void synchronize(CUstream stream) { REQUIRE(FakeCuda::instance().stream_synchronize(stream) == CUDA_SUCCESS); }
bool ended(CUevent event) {
    const CUresult state = cuda().event_query(event);
    REQUIRE((state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY));
    return state == CUDA_SUCCESS;
}
/// Waits for the work before an event, without a limit: ctest has one.
void wait_for(CUevent event) {
    while (!ended(event)) std::this_thread::yield();
}
/// Returns whether an event has not ended after a while. A slow machine makes it true more often, never less.
bool stays_held_up(CUevent event) {
    for (int i = 0; i < 50; ++i) {
        if (ended(event)) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}
/// Returns the first byte of device memory, after all work on the stream.
int value_at(const unsigned char* memory, CUstream stream) {
    unsigned char value = 0;
    copy(&value, memory, 1, stream);
    return value;
}
CUfunction kernel(const char* name) {
    CUmodule module = nullptr;
    REQUIRE(cuda().module_load_data_ex(&module, "any text", 0, nullptr, nullptr) == CUDA_SUCCESS);
    CUfunction function = nullptr;
    REQUIRE(cuda().module_get_function(&function, module, name) == CUDA_SUCCESS);
    return function;
}

/// Returns whether something holds the device's primary context.
bool is_active(CUdevice device) {
    const auto get = FakeCuda::symbol<CUresult (*)(CUdevice, unsigned*, int*)>("cuDevicePrimaryCtxGetState");
    unsigned flags = 0;
    int active = 0;
    REQUIRE(get(device, &flags, &active) == CUDA_SUCCESS);
    return active != 0;
}

/// Counts the misuses that happen while it lives, instead of aborting.
class CountedMisuses {
public:
    CountedMisuses() { ::setenv("DDP_FAKE_CUDA_MISUSE", "count", 1); }
    ~CountedMisuses() { ::unsetenv("DDP_FAKE_CUDA_MISUSE"); }
    CountedMisuses(const CountedMisuses&) = delete;
    CountedMisuses& operator=(const CountedMisuses&) = delete;
    [[nodiscard]] unsigned count() const { return FakeCuda::instance().misuses() - before_; }

private:
    const unsigned before_ = FakeCuda::instance().misuses();
};

}  // namespace

TEST_CASE("tasks of a stream run in their order", "[fake_gpu]") {
    const ScopedContext context;
    CUstream stream = new_stream();
    unsigned char* const memory = new_memory(1);
    unsigned char* const history = new_memory(200);
    Gate gate(stream);
    for (int i = 0; i < 200; ++i) {
        fill(memory, static_cast<unsigned char>(i), stream);
        copy(history + i, memory, 1, stream);
    }
    CUevent end = recorded_on(stream);
    CHECK_FALSE(ended(end));
    gate.open();
    std::array<unsigned char, 200> expected{};
    std::iota(expected.begin(), expected.end(), static_cast<unsigned char>(0));
    std::array<unsigned char, 200> seen{};
    copy(seen.data(), history, seen.size(), stream);
    CHECK(seen == expected);
    CHECK(ended(end));
}

TEST_CASE("a stream waits for an event of another one, and without it does not", "[fake_gpu]") {
    const bool waits = GENERATE(true, false);
    CAPTURE(waits);
    const ScopedContext context;
    CUstream writer = new_stream();
    CUstream reader = new_stream();
    unsigned char* const memory = new_memory(1);
    unsigned char* const seen = new_memory(1);
    fill(memory, 1, writer);
    synchronize(writer);
    Gate gate(writer);
    CUevent before_the_write = recorded_on(writer);
    if (waits) {  // without the wait the write would be the race that scenarios_test.cpp has
        fill(memory, 2, writer);
        REQUIRE(cuda().stream_wait_event(reader, recorded_on(writer), 0) == CUDA_SUCCESS);
    }
    copy(seen, memory, 1, reader);
    CUevent read = recorded_on(reader);
    if (waits) {
        CHECK(stays_held_up(read));
        gate.open();
        CHECK(value_at(seen, reader) == 2);
    } else {
        wait_for(read);  // though the writer is still held up
        CHECK_FALSE(ended(before_the_write));
        CHECK(value_at(seen, reader) == 1);
    }
}

TEST_CASE("a wait takes the record that is the latest when it is made", "[fake_gpu]") {
    const ScopedContext context;
    CUstream first = new_stream();
    CUstream second = new_stream();
    CUstream waiting = new_stream();
    CUevent event = recorded_on(first);
    Gate gate(second);
    REQUIRE(cuda().stream_wait_event(waiting, event, 0) == CUDA_SUCCESS);
    REQUIRE(cuda().event_record(event, second) == CUDA_SUCCESS);
    wait_for(recorded_on(waiting));  // it waits for the record on `first` only
    CHECK_FALSE(ended(event));
    REQUIRE(cuda().stream_wait_event(waiting, event, 0) == CUDA_SUCCESS);
    CUevent end = recorded_on(waiting);
    CHECK(stays_held_up(end));
    REQUIRE(cuda().event_destroy(event) == CUDA_SUCCESS);  // the wait remains
    CHECK_FALSE(ended(end));
    gate.open();
    wait_for(end);
}

TEST_CASE("an event that was never recorded is over, and a wait for it is a misuse that waits for nothing",
          "[fake_gpu]") {
    const ScopedContext context;
    const CountedMisuses misuses;
    CUevent event = new_event();
    CHECK(ended(event));
    CHECK(misuses.count() == 0);
    CUstream stream = new_stream();
    CHECK(cuda().stream_wait_event(stream, event, 0) == CUDA_SUCCESS);
    CHECK(misuses.count() == 1);
    synchronize(stream);
}

TEST_CASE("blocking streams and the default stream wait for each other, others do not", "[fake_gpu]") {
    const ScopedContext context;
    CUstream blocking = new_stream(0);
    CUstream other_blocking = new_stream(0);
    CUstream free = new_stream();
    Gate gate(blocking);
    CUevent of_free = recorded_on(free);
    wait_for(of_free);
    CUevent before_default = recorded_on(other_blocking);
    wait_for(before_default);  // two blocking streams do not wait for each other
    CUevent of_default = recorded_on(nullptr);
    CUevent of_other = recorded_on(other_blocking);  // behind the default stream, which is behind the gate
    CHECK(stays_held_up(of_default));
    CHECK(stays_held_up(of_other));
    wait_for(recorded_on(free));
    gate.open();
    wait_for(of_other);
    CHECK(ended(of_default));
}

TEST_CASE("the default stream waits for a destroyed blocking stream", "[fake_gpu]") {
    const ScopedContext context;
    CUstream blocking = new_stream(0);
    Gate gate(blocking);
    REQUIRE(cuda().stream_destroy(blocking) == CUDA_SUCCESS);
    CUevent of_default = recorded_on(nullptr);
    CHECK(stays_held_up(of_default));
    gate.open();
    wait_for(of_default);
}

TEST_CASE("a free waits for all work of its device, and of no other", "[fake_gpu]") {
    const ScopedContext context(0);
    const ScopedContext other_context(1);
    CUstream of_other = new_stream();  // of device 1, the current one
    unsigned char* const memory_of_other = new_memory(1);
    Gate other_gate(of_other);
    CUcontext left = nullptr;
    REQUIRE(cuda().ctx_pop_current(&left) == CUDA_SUCCESS);
    CUstream stream = new_stream();
    Gate gate(stream);
    unsigned char* const memory = new_memory(1);
    constexpr CUresult kPending{99999};
    std::atomic<CUresult> freed = kPending;
    std::thread freeing([&] {
        const ScopedContext own(0);
        freed = cuda().mem_free(device_pointer(memory));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // a slow machine only makes the check weaker
    CHECK(freed == kPending);
    gate.open();
    freeing.join();  // though the other device is held up
    CHECK(freed == CUDA_SUCCESS);
    other_gate.open();
    REQUIRE(cuda().ctx_push_current(left) == CUDA_SUCCESS);
    CHECK(cuda().mem_free(device_pointer(memory_of_other)) == CUDA_SUCCESS);
}

TEST_CASE("memory starts as anything and knows what and where it is", "[fake_gpu]") {
    const ScopedContext context(2);
    CUstream stream = new_stream();
    unsigned char* const device = new_memory(100);
    void* pinned = nullptr;
    REQUIRE(cuda().mem_host_alloc(&pinned, 100, kHostAllocPortable) == CUDA_SUCCESS);
    std::vector<char> own(8192);
    REQUIRE(cuda().mem_host_register(own.data(), own.size(), kHostRegisterPortable) == CUDA_SUCCESS);
    CHECK(cuda().mem_host_register(own.data() + 100, 1, 0) == CUresult{712});
    const int on_the_stack = 0;

    const auto attributes = [](const void* pointer) {
        unsigned type = 99;
        int ordinal = 99;
        unsigned managed = 99;
        CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                       CU_POINTER_ATTRIBUTE_IS_MANAGED};
        void* values[] = {&type, &ordinal, &managed};
        REQUIRE(cuda().pointer_get_attributes(3, names, values, device_pointer(pointer)) == CUDA_SUCCESS);
        return std::array<int, 3>{static_cast<int>(type), ordinal, static_cast<int>(managed)};
    };
    CHECK(value_at(device + 99, stream) == 0xAB);
    CHECK(attributes(device + 99) == std::array{2, 2, 0});
    CHECK(attributes(device + 100) == std::array{0, 0, 0});
    CHECK(attributes(pinned) == std::array{1, 2, 0});
    CHECK(attributes(own.data() + 5000) == std::array{1, 2, 0});
    CHECK(attributes(&on_the_stack) == std::array{0, 0, 0});

    CUdeviceptr mapped = 0;
    CHECK(cuda().mem_host_get_device_pointer(&mapped, own.data() + 8, 0) == CUDA_SUCCESS);
    CHECK(mapped == device_pointer(own.data() + 8));
    CHECK(cuda().mem_host_get_device_pointer(&mapped, device, 0) == kInvalidValue);

    CHECK(cuda().memset_d8_async(device_pointer(device + 50), 0, 51, stream) == kInvalidValue);
    CHECK(cuda().memcpy_async(device_pointer(device), device_pointer(pinned), 101, stream) == kInvalidValue);
    CHECK(cuda().mem_host_unregister(own.data()) == CUDA_SUCCESS);
    CHECK(attributes(own.data()) == std::array{0, 0, 0});
    CHECK(cuda().mem_free_host(pinned) == CUDA_SUCCESS);
    CHECK(cuda().mem_free(device_pointer(device)) == CUDA_SUCCESS);
    CHECK(cuda().mem_free(0) == CUDA_SUCCESS);
    CUdeviceptr nothing = 0;
    CHECK(cuda().mem_alloc(&nothing, 0) == kInvalidValue);
}

TEST_CASE("the free memory of a device is what its blocks leave", "[fake_gpu]") {
    const auto get = FakeCuda::symbol<CUresult (*)(std::size_t*, std::size_t*)>("cuMemGetInfo_v2");
    const ScopedContext context(2);
    const auto used = [&] {
        std::size_t free = 0, total = 0;
        REQUIRE(get(&free, &total) == CUDA_SUCCESS);
        return total - free;
    };
    const std::size_t before = used();
    unsigned char* const memory = new_memory(1000);
    void* pinned = nullptr;
    REQUIRE(cuda().mem_host_alloc(&pinned, 100, 0) == CUDA_SUCCESS);
    CHECK(used() == before + 1000);
    {
        const ScopedContext other(3);
        CHECK(used() == 0);
    }
    CHECK(cuda().mem_free_host(pinned) == CUDA_SUCCESS);
    CHECK(cuda().mem_free(device_pointer(memory)) == CUDA_SUCCESS);
    CHECK(used() == before);
}

TEST_CASE("a copy from pageable memory takes what is there when it is called", "[fake_gpu]") {
    const ScopedContext context;
    CUstream stream = new_stream();
    unsigned char* const memory = new_memory(4);
    std::array<unsigned char, 4> values{1, 2, 3, 4};
    Gate gate(stream);
    copy(memory, values.data(), values.size(), stream);
    values = {5, 6, 7, 8};
    gate.open();
    CHECK(value_at(memory + 3, stream) == 4);
}

TEST_CASE("a stream writes a word that the host polls", "[fake_gpu]") {
    const ScopedContext context;
    CUstream stream = new_stream();
    void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(page != MAP_FAILED);
    REQUIRE(cuda().mem_host_register(page, 4096, kHostRegisterDeviceMap) == CUDA_SUCCESS);
    const std::atomic_ref word(*static_cast<std::uint32_t*>(page));
    Gate gate(stream);
    REQUIRE(cuda().memset_d32_async(device_pointer(page), 7, 1, stream) == CUDA_SUCCESS);
    CHECK(word.load() == 0);
    gate.open();
    while (word.load() != 7) std::this_thread::yield();
    CHECK(cuda().memset_d32_async(device_pointer(page) + 2, 7, 1, stream) == kInvalidValue);
    CHECK(cuda().memset_d32_async(device_pointer(page) + 4092, 7, 2, stream) == kInvalidValue);
    synchronize(stream);
    REQUIRE(cuda().mem_host_unregister(page) == CUDA_SUCCESS);
    CHECK(cuda().memset_d32_async(device_pointer(page), 7, 1, stream) == kInvalidValue);
    ::munmap(page, 4096);
}

TEST_CASE("a kernel gets the arguments of its launch, and each thread its place", "[fake_gpu]") {
    const ScopedContext context;
    CUstream stream = new_stream();
    constexpr unsigned kCount = 1000;
    auto* const values = reinterpret_cast<float*>(new_memory(kCount * sizeof(float)));
    auto* const offset = reinterpret_cast<float*>(new_memory(sizeof(float)));
    std::vector<float> expected(kCount);
    std::iota(expected.begin(), expected.end(), 0.0F);
    copy(values, expected.data(), kCount * sizeof(float), stream);
    const float one = 1;
    copy(offset, &one, sizeof one, stream);
    for (float& value : expected) value = 2 * value + 1;

    struct Factors {
        float scale;
        const float* offset;
    } factors{2, offset};
    float* to = values;
    unsigned count = kCount;
    void* arguments[] = {&to, &factors, &count};
    Gate gate(stream);
    CUfunction scale_and_add = kernel("fake_scale_and_add");
    REQUIRE(cuda().launch_kernel(scale_and_add, 3, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr) == CUDA_SUCCESS);
    factors = {0, nullptr};
    to = nullptr;
    count = 0;
    gate.open();
    std::vector<float> seen(kCount);
    copy(seen.data(), values, kCount * sizeof(float), stream);
    CHECK(seen == expected);

    constexpr unsigned kThreads = 2 * 3 * 4 * 5 * 6 * 7;
    auto* places = reinterpret_cast<std::uint64_t*>(new_memory(kThreads * sizeof(std::uint64_t)));
    void* more_arguments[] = {&places};
    REQUIRE(cuda().launch_kernel(kernel("fake_places"), 2, 3, 4, 5, 6, 7, 0, stream, more_arguments, nullptr) ==
            CUDA_SUCCESS);
    std::vector<std::uint64_t> expected_places(kThreads);
    std::iota(expected_places.begin(), expected_places.end(), std::uint64_t{1});
    std::vector<std::uint64_t> seen_places(kThreads);
    copy(seen_places.data(), places, kThreads * sizeof(std::uint64_t), stream);
    CHECK(seen_places == expected_places);
}

TEST_CASE("launches that a driver refuses", "[fake_gpu]") {
    const ScopedContext context;
    CUstream stream = new_stream();
    CUmodule module = nullptr;
    CHECK(cuda().module_load_data_ex(&module, nullptr, 0, nullptr, nullptr) == kInvalidValue);
    REQUIRE(cuda().module_load_data_ex(&module, "", 0, nullptr, nullptr) == CUDA_SUCCESS);
    CUfunction function = nullptr;
    CHECK(cuda().module_get_function(&function, module, "no_such_kernel") == CUresult{500});
    REQUIRE(cuda().module_get_function(&function, module, "fake_nothing") == CUDA_SUCCESS);
    CHECK(cuda().launch_kernel(function, 0, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == kInvalidValue);
    CHECK(cuda().launch_kernel(function, 1, 1, 1, 1025, 1, 1, 0, stream, nullptr, nullptr) == kInvalidValue);
    CHECK(cuda().launch_kernel(function, 1, 65536, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == kInvalidValue);
    CHECK(cuda().launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == CUDA_SUCCESS);
    CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
}

TEST_CASE("each thread has its own stack of contexts, each stream its device", "[fake_gpu]") {
    const auto current = FakeCuda::symbol<decltype(&ddp_fake_cuda_current_device)>("ddp_fake_cuda_current_device");
    CHECK(current() == -1);
    CUcontext context = nullptr;
    CHECK(cuda().ctx_pop_current(&context) == CUDA_ERROR_INVALID_CONTEXT);
    {
        const ScopedContext outer(3);
        CUstream stream = new_stream();
        const ScopedContext inner(5);
        CHECK(current() == 5);
        CHECK(FakeCuda::instance().stream_device(stream) == 3);
        CHECK(FakeCuda::instance().stream_device(nullptr) == 5);
        std::thread([&] { CHECK(current() == -1); }).join();
        CHECK(cuda().event_record(new_event(), stream) == CUDA_ERROR_INVALID_HANDLE);  // an event of device 5
        CHECK(cuda().stream_wait_event(stream, recorded_on(new_stream()), 0) == CUDA_SUCCESS);
    }
    CHECK(current() == -1);
    CUdevice device = 0;
    CHECK(cuda().device_get(&device, 8) == CUresult{101});
    CUuuid second{}, third{};
    CHECK(cuda().device_get_uuid(&second, 1) == CUDA_SUCCESS);
    CHECK(cuda().device_get_uuid(&third, 2) == CUDA_SUCCESS);
    CHECK(std::memcmp(&second, &third, sizeof second) != 0);
}

TEST_CASE("a context ends with its last holder, and with it its streams", "[fake_gpu]") {
    const CountedMisuses misuses;
    CUcontext context = nullptr;
    REQUIRE(cuda().device_primary_ctx_retain(&context, 6) == CUDA_SUCCESS);
    REQUIRE(cuda().ctx_push_current(context) == CUDA_SUCCESS);
    CUstream stream = new_stream();
    CHECK(is_active(6));
    REQUIRE(cuda().device_primary_ctx_release(6) == CUDA_SUCCESS);
    CHECK_FALSE(is_active(6));
    CHECK(cuda().device_primary_ctx_release(6) == CUDA_ERROR_INVALID_CONTEXT);
    CUdeviceptr memory = 0;
    CHECK(cuda().mem_alloc(&memory, 1) == CUresult{709});
    REQUIRE(cuda().device_primary_ctx_retain(&context, 6) == CUDA_SUCCESS);
    CHECK(misuses.count() == 0);
    CHECK(cuda().event_record(new_event(), stream) == CUDA_ERROR_INVALID_HANDLE);
    CHECK(misuses.count() == 1);
    CHECK(cuda().mem_alloc(&memory, 1) == CUDA_SUCCESS);
    REQUIRE(cuda().ctx_pop_current(&context) == CUDA_SUCCESS);
    REQUIRE(cuda().device_primary_ctx_release(6) == CUDA_SUCCESS);
}

TEST_CASE("calls that end a capture", "[fake_gpu]") {
    const auto begin = cuda().stream_begin_capture;
    const auto end = cuda().stream_end_capture;
    constexpr CUresult kInvalidated{901};
    const ScopedContext context;
    CUstream stream = new_stream(0);
    unsigned char* const memory = new_memory(1);
    fill(memory, 1, stream);
    CUgraph graph = nullptr;
    CUstreamCaptureStatus status{};

    REQUIRE(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(cuda().stream_is_capturing(stream, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    fill(memory, 2, stream);
    SECTION("none") {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        CHECK(cuda().thread_exchange_stream_capture_mode(&mode) == CUDA_SUCCESS);
        CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
        CHECK(cuda().event_query(new_event()) == CUDA_SUCCESS);
        CHECK(cuda().thread_exchange_stream_capture_mode(&mode) == CUDA_SUCCESS);
        CHECK(end(stream, &graph) == CUDA_SUCCESS);
        CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
        CHECK(value_at(memory, stream) == 1);  // what is captured does not run
    }
    SECTION("a query, also on another thread") {
        std::thread([] {
            const ScopedContext own;
            CHECK(cuda().event_query(new_event()) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }).join();
        CHECK(end(stream, &graph) == kInvalidated);
    }
    SECTION("an allocation") {
        CUdeviceptr ignored = 0;
        CHECK(cuda().mem_alloc(&ignored, 1) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(cuda().memset_d8_async(device_pointer(memory), 1, 1, stream) == kInvalidated);
        CHECK(end(stream, &graph) == kInvalidated);
    }
    SECTION("a wait for work that is not captured") {
        CHECK(cuda().stream_wait_event(stream, recorded_on(new_stream()), 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        CHECK(end(stream, &graph) == kInvalidated);
    }
    SECTION("the default stream") {
        CHECK(cuda().event_record(new_event(), nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        CHECK(end(stream, &graph) == kInvalidated);
    }
    CHECK(cuda().stream_is_capturing(stream, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    synchronize(stream);
    CHECK(cuda().mem_free(device_pointer(memory)) == CUDA_SUCCESS);
}

namespace {

void wait_for(CUstream leader, CUstream follower) {
    REQUIRE(cuda().stream_wait_event(follower, recorded_on(leader), 0) == CUDA_SUCCESS);
}
CUgraphExec instance_of(CUgraph graph) {
    CUgraphExec instance = nullptr;
    REQUIRE(cuda().graph_instantiate(&instance, graph, 0) == CUDA_SUCCESS);
    REQUIRE(cuda().graph_destroy(graph) == CUDA_SUCCESS);
    return instance;
}

}  // namespace

TEST_CASE("a graph runs what was captured, on both streams, at each launch", "[fake_gpu]") {
    const ScopedContext context;
    CUstream main = new_stream(), side = new_stream(), other = new_stream();
    unsigned char* const memory = new_memory(3);
    for (int i = 0; i < 3; ++i) fill(memory + i, 1, main);
    synchronize(main);
    REQUIRE(cuda().stream_begin_capture(main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    wait_for(main, side);
    copy(memory + 1, memory, 1, side);
    wait_for(side, main);
    copy(memory + 2, memory + 1, 1, main);
    CUgraph graph = nullptr;
    CUstreamCaptureStatus status{};
    REQUIRE(cuda().stream_is_capturing(side, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(cuda().stream_end_capture(main, &graph) == CUDA_SUCCESS);
    REQUIRE(cuda().stream_is_capturing(side, &status) == CUDA_SUCCESS);
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    CUgraphExec instance = instance_of(graph);
    for (unsigned char value = 5; value < 8; ++value) {
        fill(memory, value, other);
        REQUIRE(cuda().graph_launch(instance, other) == CUDA_SUCCESS);
        CHECK(value_at(memory + 2, other) == value);
    }
    const Gate gate(other);
    REQUIRE(cuda().graph_launch(instance, other) == CUDA_SUCCESS);
    CHECK(cuda().graph_exec_destroy(instance) == CUDA_SUCCESS);  // in flight: it does not wait
}

TEST_CASE("a stream that does not join its capture again leaves no graph", "[fake_gpu]") {
    const ScopedContext context;
    CUstream main = new_stream(), side = new_stream();
    unsigned char* const memory = new_memory(1);
    CUgraph graph = nullptr;
    REQUIRE(cuda().stream_begin_capture(main, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    std::thread([&] {
        const ScopedContext own;
        CHECK(cuda().event_query(new_event()) == CUDA_SUCCESS);  // the mode forbids it to the capturing thread only
        CHECK(cuda().stream_end_capture(main, &graph) == CUresult{908});
    }).join();
    wait_for(main, side);
    fill(memory, 1, side);
    SECTION("at all") {}
    SECTION("behind its last work") {
        wait_for(side, main);
        fill(memory, 2, side);
    }
    CHECK(cuda().stream_end_capture(main, &graph) == CUresult{904});
    CHECK(graph == nullptr);
    fill(memory, 3, side);
    CHECK(value_at(memory, side) == 3);
}

TEST_CASE("errors have the driver's names", "[fake_gpu]") {
    CHECK(ddp::detail::cuda_error_text(cuda(), CUDA_ERROR_OUT_OF_MEMORY) == "out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
    CHECK(ddp::detail::cuda_error_text(cuda(), CUresult{12345}) == "CUDA error 12345");
}
