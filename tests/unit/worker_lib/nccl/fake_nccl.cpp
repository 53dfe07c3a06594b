// NCCL's part of the fake.

#include <cstdio>
#include <utility>

#include "tests/unit/worker_lib/nccl/fake_nccl.hpp"

namespace ddp::test {

/// The calls of a thread since its ncclGroupStart.
struct FakeGpu::Group {
    int depth = 0;
    ncclResult_t refused = ncclSuccess;
    FakeComm* comm = nullptr;  // of all its calls, as the stream: NCCL allows several, the backend has one
    CUstream stream = nullptr;
    std::vector<FakeCallToCome> calls;
    int own_messages = 0;  // sends less receives to the own rank
};

/// The functions of the table.
struct FakeNcclCalls {
    using Lock = std::unique_lock<std::mutex>;
    static FakeGpu& fake() { return FakeGpu::current(); }
    static FakeComm& real(ncclComm_t comm) { return *reinterpret_cast<FakeComm*>(comm); }

    static ncclResult_t get_unique_id(ncclUniqueId* id) {
        const Lock lock(fake().mutex_);
        if (fake().unique_id_fails) return fake().has_error_ = true, ncclSystemError;
        std::snprintf(id->internal, sizeof id->internal, "id %d", ++fake().counts_.unique_ids);
        return ncclSuccess;
    }
    static ncclResult_t init(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
        return init(comm, size, rank, std::string(id.internal), *config);
    }
    /// Ranks with different ids, or another order of them, never meet.
    static ncclResult_t init_scalable(ncclComm_t* comm, int size, int rank, int id_count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
        std::string all;
        for (int i = 0; i < id_count; ++i) all += std::string(i == 0 ? "" : ", ") + ids[i].internal;
        return init(comm, size, rank, all, *config);
    }
    static ncclResult_t init(ncclComm_t* comm, int size, int rank, const std::string& id, const ncclConfig_t& config) {
        Lock lock(fake().mutex_);
        auto* made = new FakeComm{.id = id, .rank = rank, .size = size, .blocking = config.blocking == 1};
        fake().comms_.emplace_back(made);
        fake().joined_[made->id].insert(rank);
        *comm = reinterpret_cast<ncclComm_t>(made);
        fake().changed_.notify_all();
        if (!made->blocking) return ncclInProgress;
        ++fake().counts_.blocking_inits;
        return fake().block(lock, *made, [&] { return !fake().starting(*made); });
    }
    static ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* error) {
        const Lock lock(fake().mutex_);
        *error = fake().state_of(real(comm));
        return ncclSuccess;
    }
    static ncclResult_t abort(ncclComm_t comm) {
        Lock lock(fake().mutex_);
        ++fake().counts_.aborts;
        fake().block_while(lock, fake().abort_blocks);
        fake().leave(real(comm));
        return ncclSuccess;
    }
    static ncclResult_t revoke(ncclComm_t comm, int) {
        const Lock lock(fake().mutex_);
        ++fake().counts_.revokes;
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
                                   ncclComm_t comm, CUstream stream) {
        return fake().call(real(comm), stream, {FakeKind::kAllReduce, count, type, op}, {in, out});
    }
    static ncclResult_t broadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                                  ncclComm_t comm, CUstream stream) {
        return fake().call(real(comm), stream, {FakeKind::kBroadcast, count, type, ncclSum, root}, {in, out});
    }
    static ncclResult_t reduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               int root, ncclComm_t comm, CUstream stream) {
        return fake().call(real(comm), stream, {FakeKind::kReduce, count, type, op, root}, {in, out});
    }
    static ncclResult_t all_gather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                   CUstream stream) {
        return fake().call(real(comm), stream, {FakeKind::kAllGather, count, type}, {in, out});
    }
    static ncclResult_t reduce_scatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                                       ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
        return fake().call(real(comm), stream, {FakeKind::kReduceScatter, count, type, op}, {in, out});
    }
    static ncclResult_t send(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             CUstream stream) {
        return fake().call(real(comm), stream, true, peer, {true, const_cast<void*>(in), count, type});
    }
    static ncclResult_t recv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             CUstream stream) {
        return fake().call(real(comm), stream, false, peer, {true, out, count, type});
    }
    static ncclResult_t group_start() {
        const Lock lock(fake().mutex_);
        ++fake().group_of_thread().depth;
        ++fake().counts_.open_groups;
        return ncclSuccess;
    }
    static ncclResult_t group_end() {
        const Lock lock(fake().mutex_);
        return fake().end_group();
    }
};

/// Waits as a blocking communicator does: until `over`, or until it is aborted.
ncclResult_t FakeGpu::block(std::unique_lock<std::mutex>& lock, FakeComm& comm, const std::function<bool()>& over) {
    ++blocked_;
    changed_.wait(lock, [&] { return leaving_ || comm.aborted || over(); });
    --blocked_;
    changed_.notify_all();
    return leaving_ || comm.aborted ? ncclInternalError : ncclSuccess;
}

void FakeGpu::block_while(std::unique_lock<std::mutex>& lock, const std::atomic<bool>& blocks) {
    if (!blocks) return;
    ++blocked_;
    changed_.wait(lock, [&] { return leaving_ || !blocks; });
    --blocked_;
    changed_.notify_all();
}

bool FakeGpu::starting(const FakeComm& comm) {
    return init_never_completes || static_cast<int>(joined_[comm.id].size()) < comm.size;
}

void FakeGpu::fill(detail::NcclApi& nccl) {
    nccl.get_version = [](int*) { return ncclSuccess; };
    nccl.get_unique_id = FakeNcclCalls::get_unique_id;
    nccl.comm_init_rank_config = FakeNcclCalls::init;
    if (FakeGpu::current().has_scalable) nccl.comm_init_rank_scalable = FakeNcclCalls::init_scalable;
    nccl.comm_get_async_error = FakeNcclCalls::get_async_error;
    nccl.comm_abort = FakeNcclCalls::abort;
    nccl.comm_finalize = FakeNcclCalls::finalize;
    nccl.comm_destroy = FakeNcclCalls::destroy;
    nccl.all_reduce = FakeNcclCalls::all_reduce;
    nccl.broadcast = FakeNcclCalls::broadcast;
    nccl.reduce = FakeNcclCalls::reduce;
    nccl.all_gather = FakeNcclCalls::all_gather;
    nccl.reduce_scatter = FakeNcclCalls::reduce_scatter;
    nccl.send = FakeNcclCalls::send;
    nccl.recv = FakeNcclCalls::recv;
    nccl.group_start = FakeNcclCalls::group_start;
    nccl.group_end = FakeNcclCalls::group_end;
    nccl.get_error_string = [](ncclResult_t result) {
        return result == ncclRemoteError ? "remote error" : "system error";
    };
    nccl.get_last_error = [](ncclComm_t) { return FakeGpu::current().has_error_ ? "as scripted" : ""; };
    if (FakeGpu::current().has_revoke) nccl.comm_revoke = FakeNcclCalls::revoke;
}

FakeGpu::Group& FakeGpu::group_of_thread() {
    thread_local Group group;
    return group;
}

ncclResult_t FakeGpu::call(FakeComm& comm, CUstream stream, const FakeCall& call, FakeCollective::RankBuffers buffers) {
    const std::lock_guard lock(mutex_);
    const bool gets = call.kind != FakeKind::kReduce || comm.rank == call.root;
    const bool well_formed = buffers.in != nullptr && (buffers.out != nullptr || !gets) && call.root >= 0 &&
                             call.root < comm.size && call.count > 0;
    return add(comm, stream, well_formed, [this, &comm, call, buffers] {
        return [this, &comm, call, buffers, number = ++comm.collectives] {
            FakeCollective& collective =
                collectives_.try_emplace({comm.id, number}, FakeCollective{.call = call}).first->second;
            collective.rank_buffers.insert({comm.rank, buffers});
            collective.torn = collective.torn || collective.call != call;
            const bool all_here = static_cast<int>(collective.rank_buffers.size()) == comm.size;
            if (collective.done || collective.torn || !all_here) return collective.done;
            if (!loses_data) collective.compute();
            return collective.done = true;
        };
    });
}

ncclResult_t FakeGpu::call(FakeComm& comm, CUstream stream, bool sends, int peer, const FakeMessage::Side& side) {
    const std::lock_guard lock(mutex_);
    if (peer == comm.rank) group_of_thread().own_messages += sends ? 1 : -1;
    const bool well_formed = side.data != nullptr && peer >= 0 && peer < comm.size && side.count > 0;
    return add(comm, stream, well_formed, [this, &comm, sends, peer, side] {
        const auto way = sends ? std::pair(comm.rank, peer) : std::pair(peer, comm.rank);
        const int number = ++comm.messages[{peer, sends}];
        return [this, &comm, sends, way, number, side] {
            FakeMessage& message = messages_[{comm.id, way.first, way.second, number}];
            if (message.done) return true;
            (sends ? message.sender : message.receiver) = side;
            if (message.sender.here && message.receiver.here && loses_data) message.done = true;
            message.carry();
            return message.done;
        };
    });
}

/// Adds one call, alone or to a group of calls. Count 0 is legal in NCCL, but the backend skips such calls on all ranks
/// alike, and the fake refuses them.
ncclResult_t FakeGpu::add(FakeComm& comm, CUstream stream, bool well_formed, FakeCallToCome call) {
    ncclResult_t refused = well_formed && !comm.accepted ? ncclSuccess : ncclInvalidArgument;
    if (refuse_launch && good_calls-- <= 0) refused = *refuse_launch;
    if (comm.error != ncclSuccess) refused = comm.error;
    if (!comm.blocking) comm.error = refused;
    Group& group = group_of_thread();
    if (refused != ncclSuccess) {
        has_error_ = true;
        group.depth > 0 ? void(group.refused = refused) : void(group = {});
        return refused;
    }
    group.comm = &comm;
    group.stream = stream;
    group.calls.push_back(std::move(call));
    return group.depth > 0 ? ncclSuccess : launch(std::exchange(group, {}));
}

ncclResult_t FakeGpu::end_group() {
    Group& group = group_of_thread();
    if (group.depth == 0) return ncclInvalidUsage;
    --counts_.open_groups;
    if (--group.depth > 0) return ncclSuccess;
    return launch(std::exchange(group, {}));
}

/// Launches all of the group's calls, or none. They reach the stream at the next poll of the communicator: a caller
/// that records an event without polling records it too early, and a test sees that.
ncclResult_t FakeGpu::launch(const Group& group) {
    if (group.refused != ncclSuccess) return group.refused;
    if (group.own_messages != 0) return ncclInvalidUsage;
    if (group.calls.empty()) return ncclSuccess;
    FakeComm& comm = *group.comm;
    if (std::exchange(comm.warmed_up, true)) {
        ++comm.launched;
        ++counts_.launches;
        launch_order_.push_back(comm.id);
    } else {
        ++counts_.warm_ups;
    }
    launch_threads_.insert(std::this_thread::get_id());
    std::vector<FakeStep> steps;
    for (const FakeCallToCome& call : group.calls) steps.push_back(call());
    comm.accepted = [this, &comm, stream = group.stream, steps] {
        put(stream, [this, &comm, steps] {
            if (comm.aborted && (leaving_ || !abort_leaves_kernels)) return true;
            if (frozen_ranks.contains(comm.rank)) return false;
            bool all = true;
            for (const FakeStep& step : steps) all = step() && all;
            return all;
        });
    };
    if (!comm.blocking) return ncclInProgress;
    std::unique_lock lock(mutex_, std::adopt_lock);  // the caller's
    const ncclResult_t result = block(lock, comm, [this] { return !never_takes_in; });
    (void)lock.release();
    if (result != ncclSuccess) return result;
    std::exchange(comm.accepted, nullptr)();
    return ncclSuccess;
}

/// Removes the rank's buffers from everything that still runs: their owner may free them now.
void FakeGpu::leave(FakeComm& comm) {
    comm.aborted = true;
    changed_.notify_all();
    for (auto& [key, collective] : collectives_) {
        if (key.first == comm.id && !collective.done) collective.rank_buffers.erase(comm.rank);
    }
    for (auto& [key, message] : messages_) {
        const auto& [id, sender, receiver, number] = key;
        if (id != comm.id || message.done) continue;
        if (sender == comm.rank) message.sender.here = false;
        if (receiver == comm.rank) message.receiver.here = false;
    }
}

ncclResult_t FakeGpu::state_of(FakeComm& comm) {
    if (starting(comm)) return ncclInProgress;
    if (comm.error != ncclSuccess) return comm.error;
    if (comm.accepted && never_takes_in) return ncclInProgress;
    if (comm.accepted) {
        std::exchange(comm.accepted, nullptr)();
        return ncclSuccess;  // taken in; errors come later
    }
    if (async_error && async_error->rank == comm.rank && comm.launched >= async_error->operation) {
        has_error_ = true;
        return async_error->error;
    }
    return ncclSuccess;
}

}  // namespace ddp::test
