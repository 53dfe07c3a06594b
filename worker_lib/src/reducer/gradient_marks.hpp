#pragma once
// GradientMarks: records which gradients of a backward are complete and used, and in which order they became ready. It
// also decides how each gradient is filled: copied, cleared, or left as it is (Fill). The thread that claimed a
// gradient then fills it. The reducer's mutex guards this object, but not the filling.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "worker_lib/src/reducer/gradient_storage.hpp"

namespace ddp::detail {

class GradientMarks {
public:
    /// `specs` must outlive this object.
    explicit GradientMarks(const std::vector<ParamSpec>& specs) : specs_(specs), params_(specs.size()) {}

    /// Begins a backward, in which no gradient is marked.
    void begin(bool sync);
    /// Ends a backward. After one without sync the gradients stay accumulated.
    void end(bool sync) { has_accumulated_ = !sync; }
    /// Returns whether gradients hold sums of backwards without sync that no synchronised one has followed.
    [[nodiscard]] bool has_accumulated() const { return has_accumulated_; }

    /// Takes one mark, and returns the action that the caller has to take before complete(). kNotYet: the gradient has
    /// further uses, and the caller does nothing. Throws Error{InvalidArgument} for one mark too many.
    [[nodiscard]] Fill claim(std::size_t i, bool unused);
    /// Claims every gradient that was not fully marked. It is unused if none of its uses was marked.
    [[nodiscard]] std::vector<std::pair<std::size_t, Fill>> claim_the_rest();
    /// Declares the contents of gradient i final.
    void complete(std::size_t i) {
        params_[i].complete = true;
        if (sync_) ready_order_.push_back(i);
    }

    /// Returns the parameters that are not complete, as "'a', 'b'". Returns an empty text if all are.
    [[nodiscard]] std::string missing() const;
    /// Returns one flag per parameter: used since the last synchronised backward.
    [[nodiscard]] std::vector<bool> used() const;
    /// Returns the parameters of this synchronised backward in the order in which they became complete.
    [[nodiscard]] const std::vector<std::size_t>& ready_order() const { return ready_order_; }
    /// Forgets the order of a shadow backward (Join), in which this rank computed no gradients: it must not shape the
    /// buckets.
    void forget_ready_order() { ready_order_.clear(); }

private:
    struct Param {
        int uses_left = 0;  ///< in this backward
        bool complete = false;
        bool used = false;  ///< since the last synchronised backward
    };
    [[nodiscard]] Fill how_to_fill(bool unused) const;

    const std::vector<ParamSpec>& specs_;
    std::vector<Param> params_;
    std::vector<std::size_t> ready_order_;
    bool sync_ = false;
    bool has_accumulated_ = false;
};

}  // namespace ddp::detail
