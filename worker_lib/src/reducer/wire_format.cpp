#include "worker_lib/src/reducer/wire_format.hpp"

#include <cstddef>
#include <vector>

#include "worker_lib/src/reducer/values.hpp"
#include "worker_lib/src/util/float_environment.hpp"

namespace ddp::detail {
namespace {

class HostWireFormat final : public WireFormat {
public:
    explicit HostWireFormat(bool error_feedback) : error_feedback_(error_feedback) {}

    void narrow(const GradBucket& bucket, const Buffer& wire) override {
        if (error_feedback_) add_residuals(bucket);
        detail::narrow(bucket.buffer, wire);
        if (error_feedback_) keep_residuals(bucket, wire);
    }

    void widen(const Buffer& wire, const GradBucket& bucket) override { detail::widen(wire, bucket.buffer); }

private:
    std::vector<float>& residual_of(const GradBucket::Gradient& gradient) {
        if (gradient.param >= residuals_.size()) residuals_.resize(gradient.param + 1);
        auto& residual = residuals_[gradient.param];
        if (residual.empty()) residual.resize(gradient.values.count, 0.0f);
        return residual;
    }

    void add_residuals(const GradBucket& bucket) {
        const ScopedFloatEnvironment floats;
        for (const auto& gradient : bucket.gradients) {
            auto* values = static_cast<float*>(gradient.values.data);
            const std::vector<float>& residual = residual_of(gradient);
            for (std::size_t i = 0; i < residual.size(); ++i) values[i] += residual[i];
        }
    }

    void keep_residuals(const GradBucket& bucket, const Buffer& wire) {
        const ScopedFloatEnvironment floats;
        const auto* begin = static_cast<const std::byte*>(bucket.buffer.data);
        for (const auto& gradient : bucket.gradients) {
            const auto* values = static_cast<const float*>(gradient.values.data);
            const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(gradient.values.data) - begin);
            std::vector<float>& residual = residual_of(gradient);
            const Buffer sent{static_cast<std::byte*>(wire.data) + offset / 2, residual.size(), wire.dtype,
                              Device::Cpu};
            detail::widen(sent, Buffer(residual));
            for (std::size_t i = 0; i < residual.size(); ++i) residual[i] = lost(values[i], residual[i]);
        }
    }

    /// Returns the rounding error of a value; 0 if it could not be sent (infinite or NaN), because the error would
    /// otherwise return in every step.
    static float lost(float value, float sent) {
        const float difference = value - sent;
        return difference - difference == 0 ? difference : 0;
    }

    const bool error_feedback_;
    std::vector<std::vector<float>> residuals_;  ///< by parameter, so that a rebuilt plan does not lose them
};

}  // namespace

std::unique_ptr<WireFormat> make_host_wire_format(bool error_feedback) {
    return std::make_unique<HostWireFormat>(error_feedback);
}

}  // namespace ddp::detail
