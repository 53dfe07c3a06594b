// How a group ends: at once, or, inside a callback of one of its own works, when that has returned.

#include <memory>
#include <utility>

#include "ddp/process_group.hpp"
#include "worker_lib/src/group.hpp"
#include "worker_lib/src/native/quiet_thread.hpp"

namespace ddp {

namespace detail {

namespace {

/// The end waits for the callback, so this thread cannot. Nor may anybody join that one: the callback may keep whoever
/// would do so waiting, too.
void destroy(std::unique_ptr<GroupImpl> group) noexcept {
    if (!group || !group->is_inside_callback()) return;
    GroupImpl* const own = group.release();
    try {
        start_quiet_thread("ddp-end", [own] { delete own; }).detach();
    } catch (const Error&) {  // there may be no more threads: what is in flight fails at least, and its memory stays
        own->abort("it was destroyed inside a callback, and there is no thread to be had that could end it");
    }
}

}  // namespace

}  // namespace detail

ProcessGroup::~ProcessGroup() { detail::destroy(std::move(impl_)); }

ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
    if (this != &other) detail::destroy(std::exchange(impl_, std::move(other.impl_)));
    return *this;
}

}  // namespace ddp
