#include "tests/unit/worker_lib/fake_nccl.hpp"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ddp::test {
namespace {

FakeGpu* the_fake = nullptr;  // plain function pointers carry no context
thread_local int current_device = 0;

}  // namespace

/// The functions of the tables.
struct FakeCalls {
    using Lock = std::unique_lock<std::mutex>;
    static FakeGpu& fake() { return *the_fake; }
    static FakeComm& real(ncclComm_t comm) { return *reinterpret_cast<FakeComm*>(comm); }
    static FakeEvent& real(cudaEvent_t event) { return *reinterpret_cast<FakeEvent*>(event); }

    static ncclResult_t get_unique_id(ncclUniqueId* id) {
        const Lock lock(fake().mutex_);
        if (fake().unique_id_fails) return ncclSystemError;
        std::snprintf(id->internal, sizeof id->internal, "id %d", ++fake().counts_.unique_ids);
        return ncclSuccess;
    }
    static ncclResult_t init(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
        const Lock lock(fake().mutex_);
        auto* made = new FakeComm{id.internal, rank, size, 0, false, {}};
        fake().comms_.emplace_back(made);
        fake().joined_[made->id].insert(rank);
        if (config->blocking == 1) ++fake().counts_.blocking_inits;
        *comm = reinterpret_cast<ncclComm_t>(made);
        return ncclInProgress;
    }
    static ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* error) {
        const Lock lock(fake().mutex_);
        *error = fake().state_of(real(comm));
        return ncclSuccess;
    }
    static ncclResult_t abort(ncclComm_t comm) {
        Lock lock(fake().mutex_);
        ++fake().counts_.aborts;
        if (fake().abort_blocks) {
            ++fake().blocked_;
            fake().changed_.wait(lock, [] { return fake().leaving_; });
            --fake().blocked_;
            fake().changed_.notify_all();
        }
        fake().leave(real(comm));
        return ncclSuccess;
    }
    static ncclResult_t finalize(ncclComm_t) { return ncclInProgress; }
    static ncclResult_t destroy(ncclComm_t) {
        const Lock lock(fake().mutex_);
        ++fake().counts_.destroys;
        return ncclSuccess;
    }
    static ncclResult_t all_reduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        FakeCollective shape;
        shape.count = count, shape.type = type, shape.op = op;
        return fake().accept(real(comm), stream, shape, {in, out});
    }
    static ncclResult_t broadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        FakeCollective shape;
        shape.count = count, shape.type = type, shape.root = root;
        return fake().accept(real(comm), stream, shape, {in, out});
    }

    static cudaError_t stream_create(cudaStream_t* stream, unsigned) {
        const Lock lock(fake().mutex_);
        ++fake().counts_.streams;
        *stream = reinterpret_cast<cudaStream_t>(new FakeStream);
        return cudaSuccess;
    }
    static cudaError_t stream_destroy(cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        --fake().counts_.streams;
        delete reinterpret_cast<FakeStream*>(stream);
        return cudaSuccess;
    }
    static cudaError_t stream_wait_event(cudaStream_t stream, cudaEvent_t event, unsigned) {
        const Lock lock(fake().mutex_);
        const auto awaited = real(event).recorded;
        const auto task = fake().put(stream, nullptr);
        if (awaited) task->before.push_back(awaited);
        return cudaSuccess;
    }
    static cudaError_t event_create(cudaEvent_t* event, unsigned) {
        const Lock lock(fake().mutex_);
        ++fake().counts_.events;
        *event = reinterpret_cast<cudaEvent_t>(new FakeEvent);
        return cudaSuccess;
    }
    static cudaError_t event_record(cudaEvent_t event, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        real(event).recorded = fake().at(stream).last;
        return cudaSuccess;
    }
    static cudaError_t event_query(cudaEvent_t event) {
        const Lock lock(fake().mutex_);
        const auto task = real(event).recorded;
        return task == nullptr || FakeGpu::settle(*task) ? cudaSuccess : cudaErrorNotReady;
    }
    static cudaError_t event_destroy(cudaEvent_t event) {
        const Lock lock(fake().mutex_);
        --fake().counts_.events;
        delete &real(event);
        return cudaSuccess;
    }
    static cudaError_t allocate(void** memory, std::size_t bytes) {
        const Lock lock(fake().mutex_);
        ++fake().counts_.blocks;
        *memory = std::malloc(bytes);
        std::memset(*memory, 0xAB, bytes);  // device memory starts as anything
        return cudaSuccess;
    }
    static cudaError_t free(void* memory) {
        const Lock lock(fake().mutex_);
        --fake().counts_.blocks;
        std::free(memory);
        return cudaSuccess;
    }
    static cudaError_t memset_async(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        fake().put(stream, [=] { return std::memset(memory, value, bytes) != nullptr; });
        return cudaSuccess;
    }
    static cudaError_t memcpy_async(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                    cudaStream_t stream) {
        const Lock lock(fake().mutex_);
        fake().put(stream, [=] { return std::memcpy(to, from, bytes) != nullptr; });
        return cudaSuccess;
    }
    static cudaError_t get_device_count(int* count) {
        *count = fake().devices;
        return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
    }
};

FakeGpu::FakeGpu() {
    assert(the_fake == nullptr);
    the_fake = this;
}

FakeGpu::~FakeGpu() {
    std::unique_lock lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return blocked_ == 0; });
    the_fake = nullptr;
}

detail::GpuApi FakeGpu::api(int nccl_version) const {
    detail::GpuApi api;
    api.nccl_version = nccl_version;
    api.nccl.get_version = [](int*) { return ncclSuccess; };
    api.nccl.get_unique_id = FakeCalls::get_unique_id;
    api.nccl.comm_init_rank_config = FakeCalls::init;
    api.nccl.comm_get_async_error = FakeCalls::get_async_error;
    api.nccl.comm_abort = FakeCalls::abort;
    api.nccl.comm_finalize = FakeCalls::finalize;
    api.nccl.comm_destroy = FakeCalls::destroy;
    api.nccl.all_reduce = FakeCalls::all_reduce;
    api.nccl.broadcast = FakeCalls::broadcast;
    api.nccl.get_error_string = [](ncclResult_t result) {
        return result == ncclRemoteError ? "remote error" : "system error";
    };
    api.nccl.get_last_error = [](ncclComm_t) { return "as scripted"; };
    api.cuda.get_device_count = FakeCalls::get_device_count;
    api.cuda.get_device = [](int* device) { return *device = current_device, cudaSuccess; };
    api.cuda.set_device = [](int device) { return current_device = device, cudaSuccess; };
    api.cuda.stream_create_with_flags = FakeCalls::stream_create;
    api.cuda.stream_destroy = FakeCalls::stream_destroy;
    api.cuda.stream_wait_event = FakeCalls::stream_wait_event;
    api.cuda.event_create_with_flags = FakeCalls::event_create;
    api.cuda.event_record = FakeCalls::event_record;
    api.cuda.event_query = FakeCalls::event_query;
    api.cuda.event_destroy = FakeCalls::event_destroy;
    api.cuda.malloc = FakeCalls::allocate;
    api.cuda.free = FakeCalls::free;
    api.cuda.memset_async = FakeCalls::memset_async;
    api.cuda.memcpy_async = FakeCalls::memcpy_async;
    api.cuda.get_error_string = [](cudaError_t error) {
        return error == cudaErrorNoDevice ? "none is installed" : "as scripted";
    };
    return api;
}

FakeGpu::Counts FakeGpu::counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
}

cudaStream_t FakeGpu::make_stream() {
    const std::lock_guard lock(mutex_);
    own_streams_.push_back(std::make_unique<FakeStream>());
    return reinterpret_cast<cudaStream_t>(own_streams_.back().get());
}

std::shared_ptr<std::atomic<bool>> FakeGpu::close_gate(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    auto open = std::make_shared<std::atomic<bool>>(false);
    put(stream, [open] { return open->load(); });
    return open;
}

bool FakeGpu::advance(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    const auto last = at(stream).last;
    return last == nullptr || settle(*last);
}

FakeStream& FakeGpu::at(cudaStream_t stream) {
    return stream == nullptr ? default_stream_ : *reinterpret_cast<FakeStream*>(stream);
}

std::shared_ptr<FakeTask> FakeGpu::put(cudaStream_t stream, std::function<bool()> run) {
    auto task = std::make_shared<FakeTask>();
    if (auto& last = at(stream).last; last) task->before.push_back(last);
    task->run = std::move(run);
    at(stream).last = task;
    return task;
}

bool FakeGpu::settle(FakeTask& task) {
    if (task.done) return true;
    for (const auto& earlier : task.before) {
        if (!settle(*earlier)) return false;
    }
    task.before.clear();
    return task.done = !task.run || task.run();
}

/// Takes a collective in. It reaches its stream at the next poll of the communicator, so that a caller who records an
/// event without polling records it too early, and a test sees that.
ncclResult_t FakeGpu::accept(FakeComm& comm, cudaStream_t stream, const FakeCollective& shape,
                             FakeCollective::Place place) {
    if (refuse_launch) return *refuse_launch;
    const int number = ++comm.launched;
    comm.accepted.push_back([this, &comm, stream, shape, place, number] {
        put(stream, [this, &comm, shape, place, number] {
            if (frozen_ranks.contains(comm.rank)) return false;
            if (comm.aborted) return true;
            const auto [found, is_new] = collectives_.try_emplace({comm.id, number}, shape);
            FakeCollective& collective = found->second;
            collective.places.insert({comm.rank, place});
            if (!collective.done && static_cast<int>(collective.places.size()) == comm.size) {
                collective.compute(comm.size);
                collective.done = true;
            }
            return collective.done;
        });
    });
    return ncclInProgress;
}

/// Takes the rank's buffers out of all collectives that still run: their owner may free them now.
void FakeGpu::leave(FakeComm& comm) {
    comm.aborted = true;
    for (auto& [key, collective] : collectives_) {
        if (key.first == comm.id && !collective.done) collective.places.erase(comm.rank);
    }
}

ncclResult_t FakeGpu::state_of(FakeComm& comm) {
    if (init_never_completes || static_cast<int>(joined_[comm.id].size()) < comm.size) return ncclInProgress;
    const auto launches = std::exchange(comm.accepted, {});
    for (const auto& launch : launches) launch();
    if (!launches.empty()) return ncclSuccess;  // taken in; errors come later
    if (async_error && async_error->rank == comm.rank && comm.launched >= async_error->operation)
        return async_error->error;
    return ncclSuccess;
}

}  // namespace ddp::test
