#pragma once
// BackendImpl: carries out the operations of one group. There are two, the native CPU backend (native/) and NCCL
// (nccl/); the first is the oracle for the second. GroupImpl owns it, checks arguments, numbers the operations and
// submits them; a backend runs them in the order of submit().

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/process_group.hpp"
#include "ddp/types.hpp"
#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/bootstrap/peer_states.hpp"
#include "worker_lib/src/operation/operation.hpp"
#include "worker_lib/src/operation/submission_record.hpp"
#include "worker_lib/src/operation/transfer.hpp"
#include "worker_lib/src/operation/work_state.hpp"

namespace ddp::detail {

class BackendImpl : public PeerStates {
public:
    [[nodiscard]] virtual Backend kind() const = 0;
    /// Makes a backend of the same kind for another group. Collective over spec.members; throws as make_native_backend.
    [[nodiscard]] virtual std::unique_ptr<BackendImpl> make_another(const GroupSpec& spec) const = 0;

    /// Queues the operation, or carries it out at once: then it returns null. Calls record.write() once for every
    /// operation that it does not refuse: after the announcement to the peers, if it makes one itself, and before it
    /// waits for any. submit() and transfer() are called by one thread at a time.
    [[nodiscard]] virtual std::shared_ptr<WorkState> submit(Operation&& operation, OperationRecord& record) = 0;
    /// The same for sends and receives. Call start() of the result, without any lock. On the native backend they run
    /// beside the operations; with NCCL they are steps among them. Of a batch that is done at once (null is returned)
    /// nothing has been moved from.
    [[nodiscard]] virtual std::shared_ptr<WorkState> transfer(TransferBatch&& batch, TransferRecord& record) = 0;
    /// The same without a flight record.
    [[nodiscard]] std::shared_ptr<WorkState> submit(Operation&& operation) {
        OperationRecord none;
        return submit(std::move(operation), none);
    }
    [[nodiscard]] std::shared_ptr<WorkState> transfer(TransferBatch batch) {
        TransferRecord none;
        return transfer(std::move(batch), none);
    }

    [[nodiscard]] virtual Arena& arena() = 0;
    /// Fails everything that is queued, here and on the peers. Any thread.
    virtual void abort(std::string_view reason) = 0;
    /// WorkState::after_callbacks() of the group's works: a thread can end the backend only when it has left their
    /// callbacks.
    [[nodiscard]] virtual bool after_callbacks(std::function<void()> end) const = 0;
};

}  // namespace ddp::detail
