// A program with the fake driver for tests that need a process of their own: with faults from the environment, with a
// misuse that aborts, or with what ThreadSanitizer must or must not report.
//
// usage: fake_gpu_scenarios NAME

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "ddp/error.hpp"
#include "tests/fake_gpu/test_device.hpp"
#include "worker_lib/src/cuda/device_access.hpp"

namespace {

using namespace ddp::abi;
using ddp::test::FakeCuda;

const CudaApi& cuda() { return FakeCuda::instance().api; }
void check(CUresult result) { FakeCuda::check(result); }

CUstream new_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    check(cuda().stream_create_with_priority(&stream, flags, 0));
    return stream;
}
CUevent new_event() {
    CUevent event = nullptr;
    check(cuda().event_create(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}
CUdeviceptr new_memory(std::size_t bytes) {
    CUdeviceptr memory = 0;
    check(cuda().mem_alloc(&memory, bytes));
    return memory;
}
CUevent recorded_on(CUstream stream) {
    CUevent event = new_event();
    check(cuda().event_record(event, stream));
    return event;
}
/// Waits until the work has ended, by luck as it were: nothing that ThreadSanitizer sees orders it.
void let_all_work_end() { FakeCuda::instance().wait_for_device(0); }

constexpr std::size_t kBytes = 4096;

/// A stream writes memory, then another one reads it. In time the order is always right; the question is whether the
/// program has ordered the streams, as `order` does.
template <typename Order>
void write_and_read(Order order, unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream writer = new_stream(flags);
    CUstream reader = new_stream(flags);
    CUdeviceptr memory = new_memory(kBytes);
    CUdeviceptr copy = new_memory(kBytes);
    check(cuda().memset_d8_async(memory, 5, kBytes, writer));
    order(writer, reader);
    let_all_work_end();
    check(cuda().memcpy_async(copy, memory, kBytes, reader));
    std::array<unsigned char, kBytes> seen{};
    check(cuda().memcpy_async(ddp::detail::device_pointer(seen.data()), copy, kBytes, reader));
    std::printf("read %d\n", seen[kBytes - 1]);
}

void make_wait(CUstream writer, CUstream reader) { check(cuda().stream_wait_event(reader, recorded_on(writer), 0)); }

/// Does all that orders nothing between the two streams, though the fake's bookkeeping is the same for both.
void bookkeeping(CUstream writer, CUstream reader) {
    CUstream third = new_stream();
    for (int i = 0; i < 20; ++i) {
        CUevent of_writer = recorded_on(writer);
        check(cuda().stream_wait_event(third, of_writer, 0));  // used by both streams, and so are its leftovers
        CUevent of_reader = recorded_on(reader);
        check(cuda().stream_wait_event(third, of_reader, 0));
        let_all_work_end();
        check(cuda().event_destroy(of_writer));
        check(cuda().event_destroy(of_reader));
        CUevent idle = new_event();
        check(cuda().event_query(idle));
        check(cuda().event_destroy(idle));
        CUdeviceptr memory = new_memory(kBytes);
        check(cuda().memset_d8_async(memory, 1, kBytes, third));
        let_all_work_end();
        check(cuda().mem_free(memory));
        check(cuda().stream_destroy(new_stream()));
    }
}

void poll_on_the_host(CUstream writer, CUstream) {
    CUevent event = recorded_on(writer);
    while (cuda().event_query(event) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
}

void through_a_third_stream(CUstream writer, CUstream reader) {
    CUstream third = new_stream();
    make_wait(writer, third);
    make_wait(third, reader);
}

void through_the_default_stream(CUstream, CUstream) { check(cuda().memset_d8_async(new_memory(1), 0, 1, nullptr)); }

/// An event stands for the work before its record, and not for what the stream has done by the time of the wait.
void wait_for_an_earlier_event() {
    CUstream writer = new_stream();
    CUstream reader = new_stream();
    CUdeviceptr memory = new_memory(kBytes);
    CUdeviceptr copy = new_memory(kBytes);
    CUevent before = recorded_on(writer);
    check(cuda().memset_d8_async(memory, 5, kBytes, writer));
    (void)recorded_on(writer);
    let_all_work_end();
    check(cuda().stream_wait_event(reader, before, 0));
    check(cuda().memcpy_async(copy, memory, kBytes, reader));
    check(FakeCuda::instance().stream_synchronize(reader));
    std::printf("written\n");
}

/// The host writes pinned memory that a copy reads, which it has not waited for.
void host_writes_too_early(bool waits) {
    CUstream stream = new_stream();
    void* pinned = nullptr;
    check(cuda().mem_host_alloc(&pinned, kBytes, 0));
    std::memset(pinned, 3, kBytes);
    CUdeviceptr copy = new_memory(kBytes);
    check(cuda().memcpy_async(copy, ddp::detail::device_pointer(pinned), kBytes, stream));
    if (waits) check(FakeCuda::instance().stream_synchronize(stream));
    let_all_work_end();
    std::memset(pinned, 4, kBytes);
    check(
        cuda().memset_d8_async(copy, 1, 1, stream));  // a later call does not make the earlier one see the host's write
    let_all_work_end();
    std::printf("written\n");
}

/// A stream that comes late to a copy does not see what the host has done since the call.
void host_writes_before_the_stream_begins() {
    CUstream stream = new_stream();
    void* pinned = nullptr;
    check(cuda().mem_host_alloc(&pinned, kBytes, 0));
    CUdeviceptr copy = new_memory(kBytes);
    ddp::test::Gate gate(stream);
    check(cuda().memcpy_async(copy, ddp::detail::device_pointer(pinned), kBytes, stream));
    std::memset(pinned, 4, kBytes);
    check(cuda().memset_d8_async(copy, 1, 1, stream));
    gate.open();
    let_all_work_end();
    std::printf("written\n");
}

/// The reader waits for events of a third stream, whose bookkeeping was used for the writer before.
void wait_for_others(CUstream writer, CUstream reader) {
    for (int i = 0; i < 8; ++i) check(cuda().event_destroy(recorded_on(writer)));
    let_all_work_end();
    CUstream third = new_stream();
    ddp::test::Gate gate(third);
    for (int i = 0; i < 8; ++i) {
        check(cuda().stream_wait_event(reader, recorded_on(third), 0));
        CUevent of_third = recorded_on(third);
        check(cuda().event_query(of_third) == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
    }
    gate.open();
}

/// cuMemFree waits for the device, but a program must not rely on that for other memory.
void host_reads_after_a_free() {
    CUstream stream = new_stream();
    void* pinned = nullptr;
    check(cuda().mem_host_alloc(&pinned, kBytes, 0));
    check(cuda().memset_d8_async(ddp::detail::device_pointer(pinned), 5, kBytes, stream));
    check(cuda().mem_free(new_memory(1)));
    std::printf("read %d\n", static_cast<unsigned char*>(pinned)[7]);
}

/// A captured stream writes memory, and one that has joined the capture reads it, in a graph that is launched twice.
/// Nothing outside of the graph orders them.
void write_and_read_in_a_graph(bool ordered) {
    CUstream writer = new_stream();
    CUstream reader = new_stream();
    CUdeviceptr memory = new_memory(kBytes);
    CUdeviceptr copy = new_memory(kBytes);
    check(cuda().stream_begin_capture(writer, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    make_wait(writer, reader);  // joins the capture
    check(cuda().memset_d8_async(memory, 5, kBytes, writer));
    if (ordered) make_wait(writer, reader);
    check(cuda().memcpy_async(copy, memory, kBytes, reader));
    make_wait(reader, writer);
    CUgraph graph = nullptr;
    check(cuda().stream_end_capture(writer, &graph));
    CUgraphExec instance = nullptr;
    check(cuda().graph_instantiate(&instance, graph, 0));
    check(cuda().graph_destroy(graph));
    CUstream stream = new_stream();
    for (int i = 0; i < 2; ++i) check(cuda().graph_launch(instance, stream));
    check(cuda().graph_exec_destroy(instance));
    check(FakeCuda::instance().stream_synchronize(stream));
    std::printf("read %d\n", *reinterpret_cast<unsigned char*>(copy));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Prints what three records return, and whether call and work took at least 0.3 s. `limit`: for the work, from the
/// second on.
void print_records(double limit) {
    CUstream stream = new_stream();
    CUevent event = new_event();
    for (int i = 1; i <= 3; ++i) {
        const auto start = std::chrono::steady_clock::now();
        const CUresult result = cuda().event_record(event, stream);
        std::printf("record %d: %u after %.1f s\n", i, result, seconds_since(start));
        if (result != CUDA_SUCCESS) continue;
        CUresult state = CUDA_ERROR_NOT_READY;
        while (state == CUDA_ERROR_NOT_READY && (i == 1 || seconds_since(start) < limit))
            state = cuda().event_query(event);
        std::printf("ended %d: %u after %.1f s\n", i, state, seconds_since(start));
    }
}

/// Prints whether a second record returns.
void print_whether_it_blocks() {
    CUstream stream = new_stream();
    CUevent event = recorded_on(stream);
    std::atomic<bool> returned = false;
    std::thread([&] {
        const ddp::test::ScopedContext context;
        (void)cuda().event_record(event, stream);
        returned = true;
    }).detach();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::printf("%s\n", returned ? "returned" : "blocked");
    std::_Exit(0);  // the thread is still in its call
}

/// Each is one thing that no program may do.
const std::map<std::string, void (*)()> kMisuses = {
    {"wait for an event before its record", [] { check(cuda().stream_wait_event(new_stream(), new_event(), 0)); }},
    {"free memory in flight",
     [] {
         CUstream stream = new_stream();
         CUdeviceptr memory = new_memory(kBytes);
         const ddp::test::Gate gate(stream);
         check(cuda().memset_d8_async(memory, 1, kBytes, stream));
         (void)cuda().mem_free(memory);
     }},
    {"free the argument of a kernel in flight",
     [] {
         CUmodule module = nullptr;
         check(cuda().module_load_data_ex(&module, "", 0, nullptr, nullptr));
         CUfunction kernel = nullptr;
         check(cuda().module_get_function(&kernel, module, "fake_places"));
         CUstream stream = new_stream();
         CUdeviceptr memory = new_memory(kBytes);
         const ddp::test::Gate gate(stream);
         void* arguments[] = {&memory};
         check(cuda().launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
         (void)cuda().mem_free(memory);
     }},
    {"free memory twice",
     [] {
         CUdeviceptr memory = new_memory(kBytes);
         check(cuda().mem_free(memory));
         (void)cuda().mem_free(memory);
     }},
    {"use a destroyed stream",
     [] {
         CUstream stream = new_stream();
         check(cuda().stream_destroy(stream));
         (void)cuda().event_record(new_event(), stream);
     }},
    {"destroy a stream twice",
     [] {
         CUstream stream = new_stream();
         check(cuda().stream_destroy(stream));
         (void)cuda().stream_destroy(stream);
     }},
    {"use a destroyed event",
     [] {
         CUevent event = new_event();
         check(cuda().event_destroy(event));
         (void)cuda().event_query(event);
     }},
    {"call without a context",
     [] {
         std::thread([] {
             CUdeviceptr memory = 0;
             (void)cuda().mem_alloc(&memory, 1);
         }).join();
     }},
    {"call on a stream's thread",
     [] {
         CUstream stream = new_stream();
         const auto run = [](void*) { std::printf("%u\n", cuda().init(0)); };
         check(static_cast<CUresult>(FakeCuda::instance().call(stream, run, nullptr)));
         let_all_work_end();
     }},
};

/// Prints on which device the library opens a stream for local rank 2, or why it opens none.
void print_device_of_a_local_rank() {
    try {
        const auto access = ddp::detail::open_device(2);
        std::printf("device %d\n", FakeCuda::instance().stream_device(static_cast<CUstream>(access->stream().handle)));
    } catch (const ddp::Error& error) {
        std::printf("%s\n", error.what());
    }
}

const std::map<std::string, void (*)()> kScenarios = {
    {"no order", [] { write_and_read([](CUstream, CUstream) {}); }},
    {"no order, bookkeeping", [] { write_and_read(bookkeeping); }},
    {"no order, an earlier event", wait_for_an_earlier_event},
    {"no order, non-blocking streams and the default stream", [] { write_and_read(through_the_default_stream); }},
    {"no order, the host writes", [] { host_writes_too_early(false); }},
    {"no order, the host writes first", host_writes_before_the_stream_begins},
    {"no order, other events", [] { write_and_read(wait_for_others); }},
    {"no order, the host reads after a free", host_reads_after_a_free},
    {"no order, in a graph", [] { write_and_read_in_a_graph(false); }},
    {"a wait in a graph", [] { write_and_read_in_a_graph(true); }},
    {"an event", [] { write_and_read(make_wait); }},
    {"an event and bookkeeping",
     [] {
         write_and_read([](CUstream writer, CUstream reader) {
             make_wait(writer, reader);
             bookkeeping(writer, reader);
         });
     }},
    {"the host polls", [] { write_and_read(poll_on_the_host); }},
    {"a third stream", [] { write_and_read(through_a_third_stream); }},
    {"the default stream between blocking streams", [] { write_and_read(through_the_default_stream, 0); }},
    {"the host waits before it writes", [] { host_writes_too_early(true); }},
    {"records", [] { print_records(1e9); }},
    {"records that never end", [] { print_records(0.3); }},
    {"a record that blocks", print_whether_it_blocks},
    {"the device of local rank 2", print_device_of_a_local_rank},
};

/// Prints the UUIDs of the devices, or why there is none, as the library finds them.
int print_devices() {
    const auto loaded = ddp::detail::load_cuda();
    const auto count = loaded ? ddp::detail::count_devices(*loaded) : ddprun::Result<int>(loaded.error());
    if (!count) std::printf("%s\n", count.error().message.c_str());
    for (int i = 0; count && i < *count; ++i) std::printf("%s\n", ddp::detail::device_uuid(*loaded, i).c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string name = argc == 2 ? argv[1] : "";
    if (name == "devices") return print_devices();
    const auto& all = kMisuses.contains(name) ? kMisuses : kScenarios;
    if (!all.contains(name)) {
        std::fprintf(stderr, "there is no scenario '%s'. usage: %s NAME\n", name.c_str(), argv[0]);
        return 2;
    }
    std::setvbuf(stdout, nullptr, _IONBF, 0);  // what is printed is out before a fault ends the process
    const ddp::test::ScopedContext context;
    all.at(name)();
    std::printf("misuses: %u\n", FakeCuda::instance().misuses());
    return 0;
}
