#pragma once
// WireFormat: converts f32 buckets of compress() to a type of half the size and back, in host or in device memory. With
// error feedback it owns the residuals. One for each reducer; its calls are those of the hook, in the same order.

#include <memory>

#include "ddp/bucket_plan.hpp"
#include "ddp/comm_hook.hpp"
#include "worker_lib/src/group/backend.hpp"

namespace ddp::detail {

class WireFormat {
public:
    virtual ~WireFormat() = default;
    /// Rounds the bucket's values to `wire`, of f16 or bf16 and the bucket's count. With error feedback it adds the
    /// residuals before, and keeps what rounding has changed.
    virtual void narrow(const GradBucket& bucket, const Buffer& wire) = 0;
    virtual void widen(const Buffer& wire, const GradBucket& bucket) = 0;
};

[[nodiscard]] std::unique_ptr<WireFormat> make_host_wire_format(bool error_feedback);
/// `plan`: of the reducer, for the sizes of the gradients. Takes the memory of residuals from `arena`. Throws
/// Error{System}.
[[nodiscard]] std::unique_ptr<WireFormat> make_device_wire_format(const GroupDevice& device, Arena& arena,
                                                                  const BucketPlan& plan, bool error_feedback);

}  // namespace ddp::detail
