#pragma once
// FakeGpu: NCCL and the CUDA runtime over plain host memory, in one process, with threads as ranks. "Device" memory is
// malloc's; streams and events form a graph of tasks that runs when somebody queries an event, so that nothing happens
// by itself and a test decides what is late. NCCL's part keeps to what nccl.h says: calls between ncclGroupStart and
// ncclGroupEnd begin and end together, or not at all if one of them is refused; a send or a receive takes its turn on
// the stream, and stays until its counterpart has come; what a non-blocking communicator is still at, ncclInProgress,
// is on no stream, and no other call may come before; it keeps the first error of a call. Faults are scripted before
// they happen; what was asked is counted. One FakeGpu lives at a time.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/unit/worker_lib/fake_collective.hpp"
#include "worker_lib/src/nccl/nccl_api.hpp"

namespace ddp::test {

/// One step on a stream. Done once all before it are done and `run`, asked as often as needed, has returned true.
struct FakeTask {
    bool done = false;
    std::vector<std::shared_ptr<FakeTask>> before;
    std::function<bool()> run;
};

struct FakeStream {
    std::shared_ptr<FakeTask> last;
    bool captured = false;  ///< into a graph
    int device = -1;        ///< -1: any
    bool blocking = false;  ///< waits for the default stream, as those of cudaStreamCreate do
};
struct FakeEvent {
    int device = 0;
    std::shared_ptr<FakeTask> recorded;
};

struct FakeComm {
    std::string id;
    int rank = 0;
    int size = 0;
    bool blocking = false;
    bool aborted = false;
    ncclResult_t error = ncclSuccess;  ///< what a non-blocking one has answered once, it answers for ever
    int launched = 0;                  ///< a group of calls is one
    int collectives = 0;               ///< the n-th meets the n-th of the other ranks
    std::map<std::pair<int, bool>, int> messages = {};  ///< how many there were, by peer and whether it gets them
    std::function<void()> accepted = nullptr;  ///< what a later poll puts on its stream, as non-blocking NCCL does
};

/// One call of a group: asked until it returns true, when its rank's stream has come to the group.
using FakeStep = std::function<bool()>;
/// A call whose group has not ended: gets its number among those of its kind when that is launched.
using FakeCallToCome = std::function<FakeStep()>;

class FakeGpu {
public:
    FakeGpu();
    ~FakeGpu();  ///< lets blocked aborts go and waits until they have left
    FakeGpu(const FakeGpu&) = delete;
    FakeGpu& operator=(const FakeGpu&) = delete;

    [[nodiscard]] detail::GpuApi api(int nccl_version = 22809) const;

    // Faults.
    int devices = 8;
    bool unique_id_fails = false;
    bool init_never_completes = false;
    bool abort_blocks = false;
    struct AsyncError {
        int rank;
        int operation;
        ncclResult_t error;
    };
    std::optional<AsyncError> async_error;      ///< met by `rank` after it has launched that many operations
    std::optional<ncclResult_t> refuse_launch;  ///< what every collective, send and receive answers
    int good_calls = 0;                         ///< after so many more of them
    std::atomic<bool> never_takes_in = false;   ///< calls stay in progress, as a first message whose peer does not come
    std::set<int> frozen_ranks;                 ///< their collectives never end, not even by an abort
    std::atomic<bool> loses_data = false;       ///< operations end, and write nothing
    std::atomic<bool> refuses_events = false;   ///< there are no new ones
    std::atomic<bool> refuses_memory = false;
    std::atomic<bool> capturing = false;  ///< some thread captures, in CUDA's default mode
    std::set<int> lost_devices;           ///< which cannot be made current
    /// Memory that is not of the group's device, by whose it is; -1: CUDA does not know it.
    std::map<const void*, int> other_memory;

    // What was asked.
    struct Counts {
        int unique_ids = 0, aborts = 0, destroys = 0, blocking_inits = 0;
        int streams = 0, events = 0, blocks = 0;  ///< alive, without a test's own streams
        int open_groups = 0;                      ///< of calls, on all threads
        int launches = 0;                         ///< a group of calls is one
        int frees_elsewhere = 0;                  ///< on a thread whose current device was another one
        int broken_captures = 0;                  ///< calls that end what another thread captures
        int queries = 0;                          ///< of events
    };
    [[nodiscard]] Counts counts();
    /// Devices on which there is one: once made, for good, as primary contexts are.
    [[nodiscard]] std::set<int> contexts();

    // A test's own streams.
    [[nodiscard]] cudaStream_t make_stream(int device = -1, bool blocking = false);
    void capture(cudaStream_t stream, bool captured);
    /// Nothing after this on the stream happens until the gate is opened.
    [[nodiscard]] std::shared_ptr<std::atomic<bool>> close_gate(cudaStream_t stream);
    /// Runs what can run on the stream. True: all of it is done.
    [[nodiscard]] bool advance(cudaStream_t stream);

    /// The one that lives: plain function pointers carry no context.
    [[nodiscard]] static FakeGpu& current();

private:
    friend struct FakeNcclCalls;
    friend struct FakeCudaCalls;
    struct Group;  // of calls
    static void fill(detail::CudaApi& cuda);
    static void fill(detail::NcclApi& nccl);
    static Group& group_of_thread();

    /// As the CUDA runtime from version 12 on: a thread that has none gets that of device 0, which is made.
    void need_context();
    /// What CUDA does not allow beside a capture, on threads that have not said that they mean it.
    bool ends_capture();
    /// What CUDA says of the default stream while a blocking one is captured, and of all others: success.
    cudaError_t usable(cudaStream_t stream) const;
    FakeStream& at(cudaStream_t stream);  ///< null: the default stream of the calling thread's current device
    std::shared_ptr<FakeTask> put(cudaStream_t stream, std::function<bool()> run);
    static bool settle(FakeTask& task);
    ncclResult_t call(FakeComm& comm, cudaStream_t stream, const FakeCall& call, FakeCollective::Place place);
    ncclResult_t call(FakeComm& comm, cudaStream_t stream, bool sends, int peer, const FakeMessage::Side& side);
    ncclResult_t add(FakeComm& comm, cudaStream_t stream, bool well_formed, FakeCallToCome call);
    ncclResult_t end_group();
    ncclResult_t launch(const Group& group);
    ncclResult_t state_of(FakeComm& comm);
    ncclResult_t block(std::unique_lock<std::mutex>& lock, FakeComm& comm, const std::function<bool()>& over);
    bool starting(const FakeComm& comm);
    void leave(FakeComm& comm);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<int, FakeStream> default_streams_;  // by device
    std::map<void*, int> devices_of_blocks_;
    std::set<int> contexts_;
    std::vector<std::unique_ptr<FakeStream>> own_streams_;
    std::vector<std::unique_ptr<FakeComm>> comms_;                            // for good: tasks hold on to them
    std::map<std::string, std::set<int>> joined_;                             // ranks, by unique id
    std::map<std::pair<std::string, int>, FakeCollective> collectives_;       // by unique id and number
    std::map<std::tuple<std::string, int, int, int>, FakeMessage> messages_;  // by unique id, sender, receiver, number
    Counts counts_;
    int blocked_ = 0;
    bool leaving_ = false;
};

}  // namespace ddp::test
