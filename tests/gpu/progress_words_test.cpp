// Whether a stream can write its progress into memory that another process has mapped, and what that process sees of a
// killed one (scripts/gpu-check, check 24).

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/gpu/report_line.hpp"
#include "worker_lib/src/cuda/step_words.hpp"

using namespace ddp;
using namespace ddp::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kPage = 4096;
constexpr const char* kDescriptor = "GPU_TEST_WORDS_FD";
constexpr const char* kWriter = "gpu: a process that is killed while its stream writes progress words";

using Word = std::atomic<std::uint32_t>;

/// A page that this process shares by a descriptor.
class SharedPage {
public:
    explicit SharedPage(int descriptor)
        : page_(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)) {
        REQUIRE(page_ != MAP_FAILED);
    }
    ~SharedPage() { ::munmap(page_, kPage); }
    SharedPage(const SharedPage&) = delete;
    SharedPage& operator=(const SharedPage&) = delete;
    [[nodiscard]] void* get() const { return page_; }
    [[nodiscard]] Word& word() const { return *static_cast<Word*>(page_); }

private:
    void* page_;
};

ddprun::UniqueFd make_page() {
    ddprun::UniqueFd file(::memfd_create("progress words", 0));
    REQUIRE(::ftruncate(file.get(), kPage) == 0);
    return file;
}

/// Registers the page and returns its address on the device.
CUdeviceptr register_page(const CudaApi& cuda, const SharedPage& page) {
    CUdeviceptr address = 0;
    REQUIRE(cuda.mem_host_register(page.get(), kPage, kHostRegisterPortable | kHostRegisterDeviceMap) == CUDA_SUCCESS);
    REQUIRE(cuda.mem_host_get_device_pointer(&address, page.get(), 0) == CUDA_SUCCESS);
    return address;
}

bool reaches(const Word& word, std::uint32_t value, std::chrono::seconds time) {
    const auto limit = ddprun::Clock::now() + time;
    while (word.load() != value && ddprun::Clock::now() < limit) std::this_thread::sleep_for(1ms);
    return word.load() == value;
}

}  // namespace

TEST_CASE("gpu: a stream writes progress words into a registered memfd", "[gpu][check][progress-words]") {
    RETURN_IF_NO_GPU();
    const ddprun::UniqueFd file = make_page();
    const SharedPage written(file.get()), seen(file.get());
    Gpu gpu;
    const CUdeviceptr address = register_page(gpu.api(), written);
    const auto stream = static_cast<CUstream>(gpu.stream().handle);
    for (std::uint32_t value = 1; value <= 3; ++value) {
        REQUIRE(gpu.api().memset_d32_async(address, value, 1, stream) == CUDA_SUCCESS);
        gpu.finish();
        CHECK(seen.word().load() == value);
    }
    CHECK(gpu.api().mem_host_unregister(written.get()) == CUDA_SUCCESS);
    fact("a memfd can be registered, and written by a stream");
}

TEST_CASE("gpu: progress words are steps of a captured graph", "[gpu][check][progress-words]") {
    RETURN_IF_NO_GPU();
    const ddprun::UniqueFd file = make_page();
    const SharedPage page(file.get());
    Gpu gpu;
    const CUdeviceptr address = register_page(gpu.api(), page);
    const auto stream = static_cast<CUstream>(gpu.stream().handle);
    REQUIRE(gpu.api().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    const CUresult written = gpu.api().memset_d32_async(address, 7, 1, stream);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    const CUresult ended = gpu.api().stream_end_capture(stream, &graph);
    if (written != CUDA_SUCCESS || ended != CUDA_SUCCESS ||
        gpu.api().graph_instantiate(&exec, graph, 0) != CUDA_SUCCESS) {
        // No fault of the library's: in graphs it needs a kernel for them.
        not_tried(fmt::format("progress words in graphs: {}", detail::cuda_error_text(gpu.api(), written)));
        return;
    }
    for (int replay = 0; replay < 2; ++replay) {
        page.word().store(0);
        REQUIRE(gpu.api().graph_launch(exec, stream) == CUDA_SUCCESS);
        gpu.finish();
        CHECK(page.word().load() == 7);
    }
    fact("a graph writes progress words in each replay");
    CHECK(gpu.api().mem_host_unregister(page.get()) == CUDA_SUCCESS);
}

TEST_CASE("gpu: the progress words of a killed process stay as its device left them", "[gpu][check][progress-words]") {
    RETURN_IF_NO_GPU();
    const ddprun::UniqueFd file = make_page();
    const SharedPage page(file.get());
    ::setenv(kDescriptor, std::to_string(file.get()).c_str(), 1);
    std::array<char*, 3> arguments{const_cast<char*>("gpu_tests"), const_cast<char*>(kWriter), nullptr};
    pid_t child = 0;
    REQUIRE(::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) == 0);
    ::unsetenv(kDescriptor);
    const bool wrote = reaches(page.word(), 1, 60s);
    ::kill(child, SIGKILL);  // its stream holds the second word back
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(wrote);
    CHECK(WIFSIGNALED(status));
    CHECK(page.word().load() == 1);
    fact("another process reads the words of a killed one");
}

// Started by the case above, in a process of its own.
TEST_CASE(kWriter, "[gpu][check][writer]") {
    RETURN_IF_NO_GPU();
    const char* const descriptor = std::getenv(kDescriptor);
    if (descriptor == nullptr) {
        WARN("SKIPPED: the case before it starts it");
        return;
    }
    const SharedPage page(std::stoi(descriptor));
    Gpu gpu;
    const CUdeviceptr address = register_page(gpu.api(), page);
    const auto stream = static_cast<CUstream>(gpu.stream().handle);
    REQUIRE(gpu.api().memset_d32_async(address, 1, 1, stream) == CUDA_SUCCESS);
    REQUIRE(gpu.hold(8s));
    REQUIRE(gpu.api().memset_d32_async(address, 2, 1, stream) == CUDA_SUCCESS);
    for (;;) ::pause();
}

TEST_CASE("gpu: the library's own words follow a stream until the step is given up",
          "[gpu][check][progress-words][library]") {
    RETURN_IF_NO_GPU();
    Gpu gpu;
    detail::StepWords words(std::make_shared<detail::GroupDevice>(gpu.api(), 0));
    const auto stream = static_cast<CUstream>(gpu.stream().handle);
    const auto given_up = [&] {
        const Buffer word{reinterpret_cast<void*>(words.given_up_word()), 1, DType::U32, Device::Cuda};
        return gpu.to_host<std::uint32_t>(word).front();
    };
    words.write_done(1, stream);
    CHECK(given_up() == 0);
    CHECK(words.confirmed(1) == 1);
    REQUIRE(gpu.hold(2s));
    words.write_done(2, stream);
    words.give_up();
    CHECK(words.confirmed(2) == 1);
    CHECK(given_up() == 1);
    CHECK(words.confirmed(2) == 1);  // the device has written 2 by now
    fact("a step that was given up is not confirmed");
}
