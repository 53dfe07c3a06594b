#pragma once
// For tests on the fake driver: the loaded library, and objects that undo what they do. A test's host threads only.

#include <dlfcn.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/fake_gpu/stream_call.hpp"
#include "tests/fake_gpu/unseen.hpp"
#include "worker_lib/src/cuda/driver.hpp"

namespace ddp::test {

/// The fake driver, loaded as the library loads it: by its name, so LD_LIBRARY_PATH must lead to it.
class FakeCuda {
public:
    static const FakeCuda& instance() {
        static const FakeCuda fake;
        return fake;
    }

    detail::CudaApi api;
    decltype(&ddp_fake_cuda_call) call = symbol<decltype(&ddp_fake_cuda_call)>("ddp_fake_cuda_call");
    decltype(&ddp_fake_cuda_misuses) misuses = symbol<decltype(&ddp_fake_cuda_misuses)>("ddp_fake_cuda_misuses");
    decltype(&ddp_fake_cuda_wait_for_device) wait_for_device =
        symbol<decltype(&ddp_fake_cuda_wait_for_device)>("ddp_fake_cuda_wait_for_device");
    decltype(&ddp_fake_cuda_stream_device) stream_device =
        symbol<decltype(&ddp_fake_cuda_stream_device)>("ddp_fake_cuda_stream_device");
    abi::CUresult (*stream_synchronize)(abi::CUstream) =
        symbol<abi::CUresult (*)(abi::CUstream)>("cuStreamSynchronize");

    /// Returns a function that only the fake has, or that the table of the library lacks.
    template <typename Function>
    [[nodiscard]] static Function symbol(const char* name) {
        void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
        void* const found = library == nullptr ? nullptr : ::dlsym(library, name);
        if (found == nullptr)
            throw std::runtime_error(std::string(name) +
                                     " is not in libcuda.so.1: does LD_LIBRARY_PATH lead to the fake?");
        return reinterpret_cast<Function>(found);
    }

private:
    FakeCuda() {
        const auto loaded = detail::load_cuda();
        if (!loaded) throw std::runtime_error(loaded.error().message);
        api = *loaded;
        check(api.init(0));
    }

public:
    static void check(abi::CUresult result) {
        if (result != abi::CUDA_SUCCESS) throw std::runtime_error("CUDA error " + std::to_string(result));
    }
};

/// Keeps a device's context, which is that of the calling thread while this object lives.
class ScopedContext {
public:
    explicit ScopedContext(int device = 0) : device_(device) {
        abi::CUcontext context = nullptr;
        FakeCuda::check(FakeCuda::instance().api.device_primary_ctx_retain(&context, device));
        FakeCuda::check(FakeCuda::instance().api.ctx_push_current(context));
    }
    ~ScopedContext() {
        (void)FakeCuda::instance().api.ctx_pop_current(nullptr);
        (void)FakeCuda::instance().api.device_primary_ctx_release(device_);
    }
    ScopedContext(const ScopedContext&) = delete;
    ScopedContext& operator=(const ScopedContext&) = delete;

private:
    const int device_;
};

/// Holds up a stream until open(), which is also called at the end. ThreadSanitizer does not see that a stream waits
/// for the host.
class Gate {
public:
    explicit Gate(abi::CUstream stream) {
        unseen_state_->users = 2;
        FakeCuda::check(static_cast<abi::CUresult>(FakeCuda::instance().call(stream, pass, unseen_state_)));
    }
    ~Gate() {
        open();
        give_back(unseen_state_);
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;

    void open() {
        fake::unseen_add(unseen_state_->open, 1);
        fake::futex_wake_all(&unseen_state_->open);
    }

private:
    struct State {
        fake::UnseenWord open = 0;
        fake::UnseenWord users = 0;
    };
    static void pass(void* argument) {
        auto* const state = static_cast<State*>(argument);
        while (fake::unseen_load(state->open) == 0) fake::futex_wait(&state->open, 0);
        give_back(state);
    }
    static void give_back(State* state) {
        if (fake::unseen_add(state->users, -1) == 0) delete state;
    }

    State* const unseen_state_ = new State;
};

}  // namespace ddp::test
