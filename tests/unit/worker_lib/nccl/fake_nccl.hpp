#pragma once
// FakeGpu: NCCL and the CUDA driver over host memory, in one process, with threads as ranks. "Device" memory comes
// from malloc. Streams and events form a graph of tasks that runs only when an event is queried, so a test decides what
// is late. NCCL's part follows nccl.h:
// - Calls between ncclGroupStart and ncclGroupEnd begin and end together, or not at all if one of them is refused.
// - A send or a receive takes its turn on the stream and ends only with its counterpart.
// - A call that is in progress on a non-blocking communicator is on no stream, and further calls are refused meanwhile.
//   The communicator keeps the first error of a call.
// Tests script faults before they happen, and check the counts of calls. One FakeGpu exists at a time. It has more than
// 15 members because each fault that a test can script is one.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/unit/worker_lib/nccl/fake_collective.hpp"
#include "worker_lib/src/nccl/api.hpp"

namespace ddp::test {

/// One step on a stream. It is done once all steps before it are done and `run`, which is polled, has returned true.
struct FakeTask {
    bool done = false;
    std::vector<std::shared_ptr<FakeTask>> before;
    std::function<bool()> run;
};

struct FakeStream {
    std::shared_ptr<FakeTask> last;
    bool captured = false;  ///< into a graph
    int device = -1;        ///< -1: any
    bool blocking = false;  ///< waits for the default stream, as one without CU_STREAM_NON_BLOCKING does
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
    ncclResult_t error = ncclSuccess;  ///< the first error of a non-blocking one: it returns it from then on
    bool warmed_up = false;            ///< it has launched its first call, which counts nowhere
    int launched = 0;                  ///< a group of calls is one
    int collectives = 0;               ///< the n-th meets the n-th of the other ranks
    std::map<std::pair<int, bool>, int> messages = {};  ///< number of messages, by peer and whether it receives them
    std::function<void()> accepted = nullptr;           ///< launched by a later poll, as in non-blocking NCCL
};

/// One call of a group: polled until it returns true, once its rank's stream has reached the group.
using FakeStep = std::function<bool()>;
/// A call whose group has not ended. It gets its number among calls of its kind when the group is launched.
using FakeCallToCome = std::function<FakeStep()>;

class FakeGpu {
public:
    FakeGpu();
    ~FakeGpu();  ///< releases blocked aborts and waits until their threads have released the device
    FakeGpu(const FakeGpu&) = delete;
    FakeGpu& operator=(const FakeGpu&) = delete;

    [[nodiscard]] detail::GpuApi api(int nccl_version = 22809) const;

    // Faults.
    int devices = 8;
    int slices = 1;  ///< of MIG, that each GPU has: so many devices have one bus id
    bool unique_id_fails = false;
    bool init_never_completes = false;
    std::atomic<bool> abort_blocks = false;
    std::atomic<bool> query_blocks = false;
    std::atomic<bool> query_fails = false;
    std::atomic<bool> answers_late = false;  ///< event queries that have found no end wait before they return
    std::atomic<bool> free_blocks = false;
    bool abort_leaves_kernels = false;  ///< the collectives of frozen_ranks go on
    bool has_revoke = false;            ///< before api()
    bool has_scalable = true;           ///< ncclCommInitRankScalable; before api()
    struct AsyncError {
        int rank;
        int operation;
        ncclResult_t error;
    };
    std::optional<AsyncError> async_error;      ///< met by `rank` after it has launched that many operations
    std::optional<ncclResult_t> refuse_launch;  ///< the result of every collective, send and receive
    int good_calls = 0;                         ///< calls that succeed before refuse_launch takes effect
    std::atomic<bool> never_takes_in = false;   ///< calls stay in progress, as a first message whose peer is missing
    std::set<int> frozen_ranks;                 ///< their collectives end by an abort only
    std::atomic<bool> loses_data = false;       ///< operations end, and write nothing
    std::atomic<bool> refuses_events = false;   ///< creating an event fails
    std::atomic<bool> refuses_memory = false;
    std::atomic<bool> refuses_copies = false;
    std::atomic<bool> capturing = false;  ///< some thread captures, in CUDA's default mode
    std::set<int> lost_devices;           ///< these cannot be made current
    /// Memory that is not on the group's device, with its device; -1: CUDA does not know it.
    std::map<const void*, int> other_memory;

    // Counts of calls.
    struct Counts {
        int unique_ids = 0, aborts = 0, revokes = 0, destroys = 0, blocking_inits = 0;
        int streams = 0, events = 0, blocks = 0;  ///< alive, without a test's own streams
        int open_groups = 0;                      ///< groups of calls, on all threads
        int launches = 0;                         ///< a group of calls is one
        int warm_ups = 0;                         ///< first launches of communicators, which are not among the launches
        int retained = 0;                         ///< uses of primary contexts that have not been released
        int frees_elsewhere = 0;                  ///< on a thread whose current device was another one
        int broken_captures = 0;                  ///< calls that end another thread's capture
        int queries = 0;                          ///< event queries
        int copies = 0;                           ///< that the library has queued
        int pinned = 0;                           ///< blocks of pinned memory alive
    };
    [[nodiscard]] Counts counts();
    /// Returns the unique ids of the communicators in the order of their launches, and the threads that made these.
    [[nodiscard]] std::vector<std::string> launch_order();
    [[nodiscard]] std::set<std::thread::id> launch_threads();
    /// Sets frozen_ranks while operations are in flight.
    void freeze(std::set<int> ranks);
    /// Ends init_never_completes.
    void complete_inits();
    /// Ends answers_late.
    void answer();
    /// Returns how many calls are blocked.
    [[nodiscard]] int blocked();
    /// Lets all blocked calls return, as if this process had ended.
    void let_go();
    /// Returns the devices whose primary context has been used.
    [[nodiscard]] std::set<int> contexts();

    /// Makes a device the calling thread's current one, as the program does. nothing: none.
    static void set_current(std::optional<int> device);
    [[nodiscard]] static std::optional<int> current_device();

    // A test's own streams.
    [[nodiscard]] CUstream make_stream(int device = -1, bool blocking = false);
    void capture(CUstream stream, bool captured);
    /// Puts a gate on the stream: later steps run only when it has been opened.
    [[nodiscard]] std::shared_ptr<std::atomic<bool>> close_gate(CUstream stream);
    /// Queues a copy on a stream that is not the default stream.
    void copy(void* to, const void* from, std::size_t bytes, CUstream stream);
    /// Runs what can run on the stream. Returns whether all of it is done.
    [[nodiscard]] bool advance(CUstream stream);

    /// Returns the FakeGpu that exists, for plain function pointers, which carry no context.
    [[nodiscard]] static FakeGpu& current();

private:
    friend struct FakeNcclCalls;
    friend struct FakeCudaCalls;
    struct Group;  // of calls
    static void fill(detail::CudaApi& cuda);
    static void fill(detail::NcclApi& nccl);
    static Group& group_of_thread();

    /// Ends captures for a call that CUDA does not allow beside one, unless the thread has changed its capture mode.
    bool ends_capture();
    /// Returns CUDA's error for a thread without a context, and for the default stream while a blocking stream is
    /// captured.
    CUresult usable(CUstream stream) const;
    FakeStream& at(CUstream stream);  ///< null: the default stream of the calling thread's current device
    std::shared_ptr<FakeTask> put(CUstream stream, std::function<bool()> run);
    static bool settle(FakeTask& task);
    ncclResult_t call(FakeComm& comm, CUstream stream, const FakeCall& call, FakeCollective::RankBuffers buffers);
    ncclResult_t call(FakeComm& comm, CUstream stream, bool sends, int peer, const FakeMessage::Side& side);
    ncclResult_t add(FakeComm& comm, CUstream stream, bool well_formed, FakeCallToCome call);
    ncclResult_t end_group();
    ncclResult_t launch(const Group& group);
    ncclResult_t state_of(FakeComm& comm);
    ncclResult_t block(std::unique_lock<std::mutex>& lock, FakeComm& comm, const std::function<bool()>& over);
    void block_while(std::unique_lock<std::mutex>& lock, const std::atomic<bool>& blocks);
    bool starting(const FakeComm& comm);
    void leave(FakeComm& comm);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<int, FakeStream> default_streams_;  // by device
    std::map<void*, int> devices_of_blocks_;
    std::set<void*> pinned_;  // what the library leaves to a copy that does not end is freed at the end
    std::set<int> contexts_;
    std::vector<std::unique_ptr<FakeStream>> own_streams_;
    std::vector<std::unique_ptr<FakeComm>> comms_;                            // never removed: tasks refer to them
    std::map<std::string, std::set<int>> joined_;                             // ranks, by unique id
    std::map<std::pair<std::string, int>, FakeCollective> collectives_;       // by unique id and number
    std::map<std::tuple<std::string, int, int, int>, FakeMessage> messages_;  // by unique id, sender, receiver, number
    Counts counts_;
    std::vector<std::string> launch_order_;
    std::set<std::thread::id> launch_threads_;
    int blocked_ = 0;
    bool leaving_ = false;  ///< let_go() has been called
    std::atomic<bool> has_error_ = false;
};

}  // namespace ddp::test
