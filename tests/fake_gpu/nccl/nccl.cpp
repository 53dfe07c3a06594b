// libnccl.so.2 for machines without a GPU: the functions of nccl.h that the backend calls, over the fake of the CUDA
// driver. docs/design/037-fake-gpu.md. Environment:
//   DDP_FAKE_NCCL_VERSION=22605   the version that ncclGetVersion returns
//   DDP_FAKE_NCCL_FAULTS          faults (faults.hpp, and faults() in checks.hpp)
//   DDP_FAKE_CUDA_MISUSE          what a misuse does (stream_call.hpp)

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/error.hpp"
#include "common/mutex.hpp"
#include "common/text/number.hpp"
#include "tests/fake_gpu/nccl/call_group.hpp"
#include "tests/fake_gpu/stream_call.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"

#define DDP_EXPORTED extern "C" __attribute__((visibility("default")))

using namespace ddp::abi;
using namespace ddp::fake_nccl;
using ddp::fake::Fault;

namespace {

constexpr int kVersion = 22809;  // that of version_text.cpp

/// From this version on an init that fails leaves a group of calls open.
constexpr int kLeavesGroupOpen = 22600;

int version() {
    const std::string text = ddp::detail::process_variables()("DDP_FAKE_NCCL_VERSION").value_or("");
    return ddprun::parse_number<int>(text).value_or(kVersion);
}

std::optional<Fault> fault_of(std::string_view function) {
    const auto fault = faults().next(function);
    if (fault) ddp::fake::perform(*fault);
    return fault;
}

bool is_error(const std::optional<Fault>& fault) { return fault && fault->kind == Fault::Kind::Error; }

/// Keeps a communicator for the life of the process: see communicator.hpp.
ncclComm* keep(std::unique_ptr<ncclComm> made) {
    static auto* const mutex = new ddprun::Mutex;
    static auto* const all = new std::vector<std::unique_ptr<ncclComm>>;
    const ddprun::Lock lock(*mutex);
    return all->emplace_back(std::move(made)).get();
}

ncclResult_t call(const Call& one, ncclComm_t comm, CUstream stream) {
    if (comm == nullptr) return refuse(ncclInvalidArgument, "the communicator is null");
    const Visit visit = comm->visit(name_of(one.kind));
    return CallGroup::of_thread().add(*comm, one, stream);
}

ncclResult_t init(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t& config) {
    const ncclConfig_t expected;
    if (config.size < sizeof expected || config.magic != expected.magic)
        return refuse(ncclInvalidArgument, "ncclCommInitRankConfig: ncclConfig_t is not initialized");
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return refuse(ncclInvalidArgument, "ncclCommInitRankConfig: there is no such rank");
    const auto meeting = read_unique_id(id);
    if (!meeting) return refuse(ncclInvalidArgument, "ncclCommInitRankConfig: this is not a unique id");
    const int device = ::ddp_fake_cuda_current_device();
    if (device < 0) return refuse(ncclUnhandledCudaError, "ncclCommInitRankConfig: the thread has no device");
    const auto fault = fault_of("ncclCommInitRankConfig");
    if (is_error(fault)) return refuse(static_cast<ncclResult_t>(fault->error), "ncclCommInitRankConfig: a fault");
    const bool blocking = config.blocking != 0;  // also when it is undefined
    *comm = keep(std::make_unique<ncclComm>(*meeting, rank, ranks, device, blocking));
    const bool never = fault && fault->kind == Fault::Kind::Never;
    return never ? (*comm)->init_never() : (*comm)->init();
}

}  // namespace

DDP_EXPORTED ncclResult_t ncclGetVersion(int* number) {
    *number = version();
    return ncclSuccess;
}

DDP_EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const auto fault = fault_of("ncclGetUniqueId");
    if (is_error(fault)) return refuse(static_cast<ncclResult_t>(fault->error), "ncclGetUniqueId: a fault");
    try {
        *id = make_unique_id();
        return ncclSuccess;
    } catch (const std::exception& error) {
        return refuse(ncclSystemError, error.what());
    }
}

DDP_EXPORTED ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                                 ncclConfig_t* config) {
    *comm = nullptr;
    const ncclResult_t result = init(comm, ranks, id, rank, config == nullptr ? ncclConfig_t() : *config);
    if (result == ncclSuccess || result == ncclInProgress) return result;
    *comm = nullptr;
    if (version() >= kLeavesGroupOpen) CallGroup::of_thread().leave_open();
    return result;
}

/// All ranks meet by the first id. The others are only checked: they shorten the start, which is not modelled.
DDP_EXPORTED ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count,
                                                   ncclUniqueId* ids, ncclConfig_t* config) {
    *comm = nullptr;
    if (id_count < 1 || id_count > ranks) return refuse(ncclInvalidArgument, "ncclCommInitRankScalable: nId");
    for (int index = 0; index < id_count; ++index) {
        if (!read_unique_id(ids[index]))
            return refuse(ncclInvalidArgument, "ncclCommInitRankScalable: this is not a unique id");
    }
    return ncclCommInitRankConfig(comm, ranks, ids[0], rank, config);
}

DDP_EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    if (comm == nullptr) return refuse(ncclInvalidArgument, "the communicator is null");
    const Visit visit = comm->visit("ncclCommGetAsyncError");
    const auto fault = fault_of("ncclCommGetAsyncError");
    *error = is_error(fault) ? static_cast<ncclResult_t>(fault->error) : comm->async_error();
    return ncclSuccess;
}

DDP_EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) {
    if (comm == nullptr) return ncclSuccess;
    // A thread that waits in a call of a blocking communicator is let out by this.
    if (comm->blocking()) return comm->abort();
    const Visit visit = comm->visit("ncclCommAbort");
    return comm->abort();
}

DDP_EXPORTED ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    if (comm == nullptr) return ncclSuccess;
    const Visit visit = comm->visit("ncclCommFinalize");
    return comm->finalize();
}

DDP_EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (comm == nullptr) return ncclSuccess;
    (void)fault_of("ncclCommDestroy");
    const Visit visit = comm->visit("ncclCommDestroy");
    return comm->destroy();
}

DDP_EXPORTED ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                                        ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
    return call({CallKind::kAllReduce, in, out, count, type, op}, comm, stream);
}

DDP_EXPORTED ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                                        ncclComm_t comm, CUstream stream) {
    return call({CallKind::kBroadcast, in, out, count, type, ncclSum, root}, comm, stream);
}

DDP_EXPORTED ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                     int root, ncclComm_t comm, CUstream stream) {
    return call({CallKind::kReduce, in, out, count, type, op, root}, comm, stream);
}

DDP_EXPORTED ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                                        ncclComm_t comm, CUstream stream) {
    return call({CallKind::kAllGather, in, out, count, type}, comm, stream);
}

DDP_EXPORTED ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                                            ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
    return call({CallKind::kReduceScatter, in, out, count, type, op}, comm, stream);
}

DDP_EXPORTED ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                   CUstream stream) {
    return call({CallKind::kSend, in, nullptr, count, type, ncclSum, peer}, comm, stream);
}

DDP_EXPORTED ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                   CUstream stream) {
    return call({CallKind::kReceive, nullptr, out, count, type, ncclSum, peer}, comm, stream);
}

DDP_EXPORTED ncclResult_t ncclGroupStart() {
    (void)fault_of("ncclGroupStart");
    CallGroup::of_thread().start();
    return ncclSuccess;
}

DDP_EXPORTED ncclResult_t ncclGroupEnd() {
    (void)fault_of("ncclGroupEnd");
    return CallGroup::of_thread().end();
}

DDP_EXPORTED const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return "no error";
        case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
        case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
        case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
        case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
        case ncclTimeout: return "timeout";
    }
    return "unknown result code";
}

DDP_EXPORTED const char* ncclGetLastError(ncclComm_t /*comm*/) { return last_error(); }
