#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/background_save.hpp"
#include "worker_lib/src/checkpoint/directory.hpp"
#include "worker_lib/src/checkpoint/file.hpp"
#include "worker_lib/src/checkpoint/manifest.hpp"
#include "worker_lib/src/checkpoint/save_fence.hpp"
#include "worker_lib/src/checkpoint/state_pieces.hpp"
#include "worker_lib/src/cuda/call_checks.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/group/broadcast_in_pieces.hpp"
#include "worker_lib/src/group/group_impl.hpp"

namespace ddp {
namespace {

// Long enough for rank 0 to move a large model to a slow disk. If rank 0 dies meanwhile, its connection shows that at
// once.
constexpr std::chrono::hours kDiskTimeout{4};

void broadcast(ProcessGroup& group, Buffer buffer, std::string_view label) {
    group.broadcast(buffer, 0, {.timeout = kDiskTimeout, .label = label}).wait();
}

/// Runs `action` on rank 0. Every rank returns its result or throws its error, so no rank goes on after a save that
/// failed, and none waits for a rank 0 that has thrown. `label` names the call. Collective.
std::uint64_t on_rank_0(ProcessGroup& group, std::string_view label, const std::function<std::uint64_t()>& action) {
    std::uint64_t result = 0;
    std::string text;
    ErrorCode code = ErrorCode::Io;
    if (group.rank() == 0) {
        try {
            result = action();
        } catch (const Error& error) {
            code = error.code();
            text = error.what();
        } catch (const std::exception& error) {
            text = fmt::format("checkpoint: {}", error.what());
        }
    }
    std::array<std::uint64_t, 3> status{result, static_cast<std::uint64_t>(code), text.size()};
    broadcast(group, status, label);
    if (status[2] == 0) return status[0];
    text.resize(status[2]);
    std::vector<std::uint8_t> bytes(text.begin(), text.end());
    broadcast(group, bytes, label);
    throw Error(static_cast<ErrorCode>(status[1]), std::string(bytes.begin(), bytes.end()));
}

/// Returns the newest step whose file is whole, plus 1; 0 if there is none. Prints a line for each damaged file that it
/// skips.
std::uint64_t newest_whole_plus_1(const std::filesystem::path& directory) {
    for (const std::uint64_t step : detail::steps_in(directory)) {
        const auto path = detail::checkpoint_path(directory, step);
        const std::string damage = detail::find_damage(path, step);
        if (damage.empty()) return step + 1;
        fmt::print(stderr, "ddp: skipping checkpoint {}: {}\n", path.string(), damage);
    }
    return 0;
}

std::string cannot_save(const std::filesystem::path& path) {
    return fmt::format("cannot save checkpoint {}", path.string());
}

/// Throws Error{InvalidArgument} for device memory of the state, or a stream, that the group cannot use.
void check_device(detail::GroupImpl& group, std::span<const NamedBuffer> state, Stream stream) {
    const auto refuse = [](std::string_view what, std::string_view why) {
        throw Error(ErrorCode::InvalidArgument, fmt::format("cannot checkpoint {}: {}", what, why));
    };
    detail::GroupDevice* const device = group.backend().device();
    if (device == nullptr && stream.handle != nullptr) {
        refuse("behind a stream",
               "this group is on the native backend, which takes host memory only. Synchronise the "
               "stream before the call, and leave it out; device memory needs Backend::Nccl");
    }
    if (device == nullptr || !detail::has_device_memory(state)) return;
    const detail::DeviceScope scope(*device);
    const auto handle = static_cast<detail::CUstream>(stream.handle);
    if (const auto wrong = detail::capture_complaint(device->cuda(), handle); !wrong.empty())
        refuse("device memory", wrong + ". Call save and load before or after the capture");
    for (const NamedBuffer& named : state) {
        if (named.buffer.device != Device::Cuda) continue;
        const auto wrong = detail::memory_complaint(device->cuda(), named.buffer, "buffer", device->index());
        if (!wrong.empty()) refuse(fmt::format("'{}'", named.name), wrong);
    }
}

/// Throws on all ranks unless they have passed the same step, names, types and sizes. Collective. An error that
/// only one rank has found is part of the comparison, so that the others do not wait for that rank.
void require_same(ProcessGroup& group, detail::GroupImpl& impl, std::uint64_t step, std::span<const NamedBuffer> state,
                  Stream stream) {
    std::vector<std::string> items{fmt::format("step {}", step)};
    for (std::size_t i = 0; i < state.size(); ++i) items.push_back(detail::describe(i, state[i]));
    std::exception_ptr refusal;
    try {
        detail::check_state(state, group.backend());
        check_device(impl, state, stream);
    } catch (const Error& error) {
        refusal = std::current_exception();
        items.insert(items.begin(), error.what());
    }
    detail::require_agreement(group, "the checkpoint", items,
                              "Call save and load with the same step, names, types and sizes on every rank.",
                              kDiskTimeout);
    if (refusal) std::rethrow_exception(refusal);
}

/// Calls `use` with the Staging of rank 0, behind `stream`; with null for a state of host memory. Adds `what` to errors
/// of the device.
/// kept   the Staging of earlier calls, if any; it is made on first need, and again if it is too small or broken
void with_staging(detail::GroupImpl& group, std::shared_ptr<detail::Staging>& kept, std::string_view what,
                  std::span<const NamedBuffer> state, Stream stream, const std::function<void(detail::Staging*)>& use) {
    if (!detail::has_device_memory(state)) return use(nullptr);
    const std::size_t piece_bytes = std::min(detail::max_device_bytes(state), detail::Staging::kPieceBytes);
    try {
        if (!kept || kept->piece_bytes() < piece_bytes) {
            const detail::GroupDevice& device = *group.backend().device();
            kept = nullptr;
            kept = std::make_shared<detail::Staging>(device.cuda(), device.index(), piece_bytes,
                                                     group.spec().default_timeout);
        }
        kept->wait_for(stream);
        use(kept.get());
    } catch (const Error& error) {
        if (kept && !kept->settle()) kept = nullptr;
        if (error.code() != ErrorCode::System && error.code() != ErrorCode::InvalidArgument) throw;
        throw Error(error.code(), fmt::format("{}: {}", what, error.what()));
    }
}

/// Throws the group's failure, because the values may come from operations that were aborted. Called after the values
/// have been copied: a group knows of its failure before it aborts an operation.
void refuse_failed(detail::GroupImpl& group) {
    if (const auto failure = group.failure()) throw Error(*failure);
}

}  // namespace

Checkpointer::Checkpointer(std::filesystem::path dir, ProcessGroup& group, CheckpointerOptions options)
    : dir_(std::move(dir)),
      group_(&group),
      keep_(options.keep),
      background_(std::make_shared<detail::BackgroundSave>()) {
    if (keep_ < 1)
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("Checkpointer: keep is {}, but at least 1 checkpoint has to be kept", keep_));
    on_rank_0(group, "open checkpoints", [&] {
        detail::open_directory(dir_);
        const detail::GroupSpec& spec = group.impl_->spec();
        fence_ = std::make_shared<detail::SaveFence>(dir_, detail::Owner{spec.session, spec.generation});
        fence_->open();
        return std::uint64_t{0};
    });
}

Checkpointer::Checkpointer(std::filesystem::path dir, Context& context, CheckpointerOptions options)
    : Checkpointer(std::move(dir), context.world(), options) {}

void Checkpointer::save(std::uint64_t step, List<NamedBuffer> list, Stream stream) {
    wait();
    const std::span<const NamedBuffer> state = list.elements();
    detail::GroupImpl& group = *group_->impl_;
    require_same(*group_, group, step, state, stream);
    on_rank_0(*group_, "save checkpoint", [&] {
        fence_->take_over();
        const auto path = detail::checkpoint_path(dir_, step);
        const detail::Manifest manifest = detail::make_manifest(step, group_->size(), state);
        with_staging(group, staging_, cannot_save(path), state, stream, [&](detail::Staging* staging) {
            const auto temporary = detail::write_temporary(path, *fence_, manifest, state, staging);
            try {
                refuse_failed(group);
            } catch (const Error&) {
                detail::discard(temporary);
                throw;
            }
            detail::commit(temporary, path, *fence_, manifest);
        });
        return std::uint64_t{0};
    });
    if (group_->rank() == 0) detail::remove_older(dir_, step, keep_);
}

void Checkpointer::save_async(std::uint64_t step, List<NamedBuffer> list, Stream stream) {
    wait();
    const std::span<const NamedBuffer> state = list.elements();
    detail::GroupImpl& group = *group_->impl_;
    require_same(*group_, group, step, state, stream);
    on_rank_0(*group_, "copy checkpoint", [&] {
        fence_->take_over();
        auto path = detail::checkpoint_path(dir_, step);
        std::shared_ptr<const detail::HostCopy> copy;
        with_staging(group, staging_, cannot_save(path), state, stream,
                     [&](detail::Staging* staging) { copy = std::make_shared<detail::HostCopy>(state, staging); });
        refuse_failed(group);
        background_->start([copy, step, path, size = group_->size(), fence = fence_] {
            const detail::Manifest manifest = detail::make_manifest(step, size, copy->state());
            detail::commit(detail::write_temporary(path, *fence, manifest, copy->state()), path, *fence, manifest);
        });
        return std::uint64_t{0};
    });
    background_->begin(step);
}

void Checkpointer::wait() {
    const auto step = background_->take();
    if (!step) return;
    on_rank_0(*group_, "finish checkpoint", [&] {
        background_->finish();
        return std::uint64_t{0};
    });
    if (group_->rank() == 0) detail::remove_older(dir_, *step, keep_);
}

std::optional<std::uint64_t> Checkpointer::latest() {
    wait();
    const std::uint64_t found = on_rank_0(*group_, "latest checkpoint", [&] { return newest_whole_plus_1(dir_); });
    if (found == 0) return std::nullopt;
    return found - 1;
}

void Checkpointer::load(std::uint64_t step, List<NamedBuffer> list, Stream stream) {
    wait();
    const std::span<const NamedBuffer> state = list.elements();
    require_same(*group_, *group_->impl_, step, state, stream);
    on_rank_0(*group_, "load checkpoint", [&] {
        const auto path = detail::checkpoint_path(dir_, step);
        with_staging(*group_->impl_, staging_, fmt::format("cannot load checkpoint {}", path.string()), state, stream,
                     [&](detail::Staging* staging) { detail::read_checkpoint(path, step, state, staging); });
        return std::uint64_t{0};
    });
    std::vector<Buffer> buffers;
    for (const NamedBuffer& named : state) buffers.push_back(named.buffer);
    detail::broadcast_in_pieces(*group_, buffers, 0, "load checkpoint", stream);
}

}  // namespace ddp
