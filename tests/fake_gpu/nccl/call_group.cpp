#include "tests/fake_gpu/nccl/call_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ddp::fake_nccl {

CallGroup& CallGroup::of_thread() {
    thread_local CallGroup group;
    return group;
}

CallGroup::~CallGroup() {
    if (depth_ == 0 || (left_open_ && calls_.empty())) return;
    misuse(fmt::format("a thread ends with an open group of {} calls: ncclGroupEnd was not called", calls_.size()));
}

ncclResult_t CallGroup::end() {
    if (depth_ == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--depth_ > 0) return ncclSuccess;
    left_open_ = false;
    return launch();
}

ncclResult_t CallGroup::add(Communicator& communicator, const Call& call, CUstream stream) {
    if (const std::string wrong = complaint(communicator, stream); !wrong.empty()) return misuse(wrong);
    communicator_ = &communicator;
    stream_ = stream;
    const ncclResult_t result = communicator.check(call);
    if (result != ncclSuccess) {
        if (refused_ == ncclSuccess) refused_ = result;
    } else {
        calls_.push_back(call);
    }
    if (depth_ > 0) return result;
    return launch();
}

/// NCCL allows several communicators and streams in one group. The backend has no use for that, and a group that it has
/// left open would look like this.
std::string CallGroup::complaint(const Communicator& communicator, CUstream stream) const {
    if (communicator_ == nullptr) return {};
    if (communicator_ != &communicator)
        return fmt::format("a call on {} in a group with calls on {}: was it left open?", communicator.text(),
                           communicator_->text());
    return stream == stream_ ? "" : fmt::format("{}: a group of calls on two streams", communicator.text());
}

ncclResult_t CallGroup::launch() {
    Communicator* const communicator = std::exchange(communicator_, nullptr);
    const ncclResult_t refused = std::exchange(refused_, ncclSuccess);
    std::vector<Call> calls = std::exchange(calls_, {});
    if (refused != ncclSuccess) return refused;
    if (communicator == nullptr) return ncclSuccess;
    int own_messages = 0;  // sends less receives
    for (const Call& call : calls) {
        if (call.root != communicator->rank()) continue;
        own_messages += call.kind == CallKind::kSend ? 1 : call.kind == CallKind::kReceive ? -1 : 0;
    }
    if (own_messages != 0) {
        return refuse(ncclInvalidUsage, fmt::format("{}: it sends itself a message that it does not receive, or the "
                                                    "other way round",
                                                    communicator->text()));
    }
    const auto is_empty = [](const Call& call) { return call.count == 0; };
    if (std::ranges::all_of(calls, is_empty)) return ncclSuccess;
    const Visit visit = communicator->visit("ncclGroupEnd");
    return communicator->launch(std::move(calls), stream_);
}

}  // namespace ddp::fake_nccl
