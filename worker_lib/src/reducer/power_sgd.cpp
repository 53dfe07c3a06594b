// The public interface of PowerSgd, which forwards every call to LowRankExchange.
#include "ddp/power_sgd.hpp"

#include <utility>

#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/reducer/low_rank_exchange.hpp"
#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp {

PowerSgd::PowerSgd(std::vector<ParamSpec> params, PowerSgdOptions options)
    : exchange_(std::make_unique<detail::LowRankExchange>(std::move(params), options)) {}
PowerSgd::~PowerSgd() = default;

void PowerSgd::prepare(ProcessGroup& group, const BucketPlan& plan) {
    if (detail::GroupImpl::of(group).backend().device() != nullptr)
        detail::refuse("PowerSgd takes gradients in host memory. Set ReducerOptions::device to Device::Cpu");
    exchange_->prepare(group, plan);
}
Work PowerSgd::launch(const GradBucket&) { return {}; }  // complete() does all, one bucket after another
void PowerSgd::complete(const GradBucket& bucket) { exchange_->complete(bucket); }
void PowerSgd::abort(std::string_view reason) { exchange_->abort(reason); }
void PowerSgd::release() { exchange_->release(); }
void PowerSgd::settle() { exchange_->settle(); }
std::vector<NamedBuffer> PowerSgd::state(std::string_view prefix) { return exchange_->state(prefix); }
std::uint64_t PowerSgd::bytes_sent() const { return exchange_->bytes_sent(); }

}  // namespace ddp
