#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/number.hpp"
#include "ddp/checkpoint.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/background_save.hpp"
#include "worker_lib/src/checkpoint/collective_steps.hpp"
#include "worker_lib/src/checkpoint/directory.hpp"
#include "worker_lib/src/checkpoint/file.hpp"
#include "worker_lib/src/checkpoint/memory_pieces.hpp"
#include "worker_lib/src/checkpoint/save.hpp"
#include "worker_lib/src/checkpoint/save_fence.hpp"
#include "worker_lib/src/checkpoint/state.hpp"
#include "worker_lib/src/checkpoint/together.hpp"
#include "worker_lib/src/cuda/call_checks.hpp"
#include "worker_lib/src/cuda/group_device.hpp"
#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/group/broadcast_in_pieces.hpp"
#include "worker_lib/src/group/group_impl.hpp"

namespace ddp {
namespace {

using detail::kDiskTimeout;
using detail::Kind;
using detail::on_rank_0;
using detail::together;

/// Returns the newest step whose file is whole, as text; empty if there is none. Prints a line for each damaged file
/// that it skips.
std::string newest_whole(const std::filesystem::path& directory) {
    for (const std::uint64_t step : detail::steps_in(directory)) {
        const auto path = detail::existing_path(directory, step);
        const std::string damage = detail::find_damage(path, step);
        if (damage.empty()) return std::to_string(step);
        fmt::print(stderr, "ddp: skipping checkpoint {}: {}\n", path.string(), damage);
    }
    return {};
}

std::string cannot_save(const std::filesystem::path& path) {
    return fmt::format("cannot save checkpoint {}", path.string());
}

/// Throws Error{InvalidArgument} for device memory of the state, or a stream, that the group cannot use.
void check_device(detail::GroupImpl& group, std::span<const NamedShard> state, Stream stream) {
    const auto refuse = [](std::string_view text) {
        throw Error(ErrorCode::InvalidArgument, fmt::format("cannot checkpoint {}", text));
    };
    detail::GroupDevice* const device = group.backend().device();
    if (device == nullptr && stream.handle != nullptr) {
        refuse(
            "behind a stream: this group is on the native backend, which takes host memory only. Synchronise the "
            "stream before the call, and leave it out; device memory needs Backend::Nccl");
    }
    if (device == nullptr || !detail::has_device_memory(state)) return;
    const detail::DeviceScope scope(*device);
    const auto handle = static_cast<detail::CUstream>(stream.handle);
    if (const auto wrong = detail::capture_complaint(device->cuda(), handle); !wrong.empty())
        refuse(fmt::format("device memory: {}. Call save and load before or after the capture", wrong));
    for (const NamedShard& shard : state) {
        if (shard.part.device != Device::Cuda) continue;
        const auto wrong = detail::memory_complaint(device->cuda(), shard.part, "buffer", device->index());
        if (!wrong.empty()) refuse(fmt::format("'{}': {}", shard.name, wrong));
    }
}

/// Throws on all ranks unless they have passed the same step, names, types and sizes. Collective. An error that
/// only one rank has found is part of the comparison, so that the others do not wait for that rank.
void require_same(ProcessGroup& group, detail::GroupImpl& impl, std::uint64_t step, std::span<const NamedShard> state,
                  Kind kind, Stream stream) {
    std::vector<std::string> items{fmt::format("step {}{}", step, kind == Kind::kWhole ? "" : " of parts")};
    for (std::size_t i = 0; i < state.size(); ++i) items.push_back(detail::describe(i, state[i], kind == Kind::kWhole));
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

/// Calls `use` with the Staging of this rank, behind `stream`; with null for a state of host memory. Adds `what` to
/// errors of the device. kept   the Staging of earlier calls, if any; it is made on first need, and again if it is too
/// small or broken
void with_staging(detail::GroupImpl& group, std::shared_ptr<detail::Staging>& kept, std::string_view what,
                  std::span<const NamedShard> state, Stream stream, const std::function<void(detail::Staging*)>& use) {
    if (!detail::has_device_memory(state)) return use(nullptr);
    const auto settle = [&kept] {
        if (kept && !kept->settle()) kept = nullptr;
    };
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
        settle();
        if (error.code() != ErrorCode::System && error.code() != ErrorCode::InvalidArgument) throw;
        throw Error(error.code(), fmt::format("{}: {}", what, error.what()));
    } catch (...) {
        settle();
        throw;
    }
}

/// Writes this rank's blocks, and then looks for the marker on rank 0, whose error comes first: once a newer generation
/// has removed the temporary file, some file systems fail its writers.
/// fence   null on other ranks
void write_fenced(detail::Save& save, const detail::SaveFence* fence, detail::Staging* staging) {
    try {
        save.write(staging);
    } catch (const Error&) {
        if (fence != nullptr) fence->refuse_superseded(save.path());
        throw;
    }
    if (fence != nullptr) fence->refuse_superseded(save.path());
}

/// Reads the parts of `state` from an open file.
void read_parts(detail::GroupImpl& group, std::shared_ptr<detail::Staging>& kept,
                const ddprun::checkpoint::StoredCheckpoint& file, const std::filesystem::path& path,
                std::span<const NamedShard> state, Stream stream) {
    with_staging(group, kept, fmt::format("cannot load checkpoint {}", path.string()), state, stream,
                 [&](detail::Staging* staging) { detail::read_checkpoint(file, path, state, staging); });
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
    together(group, "open checkpoints", [&] {
        if (group.rank() != 0) return;
        detail::open_directory(dir_);
        const detail::GroupSpec& spec = group.impl_->spec();
        fence_ = std::make_shared<detail::SaveFence>(dir_, detail::Owner{spec.session, spec.generation});
        fence_->open();
    });
}

Checkpointer::Checkpointer(std::filesystem::path dir, Context& context, CheckpointerOptions options)
    : Checkpointer(std::move(dir), context.world(), options) {}

/// Compares the arguments, creates the file and brings the bytes of blocks that several ranks have to their writers.
std::shared_ptr<detail::Save> Checkpointer::begin_save(std::uint64_t step, std::vector<NamedShard> state, bool is_whole,
                                                       Stream stream) {
    wait();
    const Kind kind = is_whole ? Kind::kWhole : Kind::kParts;
    detail::GroupImpl& group = *group_->impl_;
    require_same(*group_, group, step, state, kind, stream);
    const auto ranges = detail::ranges_of_all(*group_, state, kind);
    detail::require_covered(state, ranges);
    const auto path = detail::checkpoint_path(dir_, step);
    const ddprun::checkpoint::SaveFacts facts{step, static_cast<std::uint64_t>(group_->size()),
                                              group.spec().generation};
    std::shared_ptr<detail::Save> save;
    together(*group_, "prepare checkpoint",
             [&] { save = std::make_shared<detail::Save>(path, facts, state, group_->rank()); });
    const std::string name = on_rank_0(*group_, "save checkpoint", [&] {
        fence_->take_over();
        return save->create(*fence_);
    });
    const std::vector<bool> can_write = detail::flags_of_all(*group_, save->open(name), "open checkpoint");
    std::vector<std::byte> sent;
    together(*group_, "borders of the checkpoint", [&] {
        save->plan(ranges, can_write);
        if (save->planned().sends.empty()) return;
        with_staging(group, staging_, cannot_save(path), state, stream,
                     [&](detail::Staging* staging) { sent = save->bytes_to_send(staging); });
    });
    detail::exchange(*group_, *save, sent);
    return save;
}

void Checkpointer::save_now(std::uint64_t step, std::vector<NamedShard> state, bool is_whole, Stream stream) {
    const auto save = begin_save(step, state, is_whole, stream);
    together(*group_, "write checkpoint", [&] {
        with_staging(*group_->impl_, staging_, cannot_save(detail::checkpoint_path(dir_, step)), state, stream,
                     [&](detail::Staging* staging) { write_fenced(*save, fence_.get(), staging); });
        refuse_failed(*group_->impl_);
    });
    detail::commit(*group_, *save, fence_.get());
    if (group_->rank() == 0) detail::remove_older(dir_, step, keep_);
}

void Checkpointer::save_later(std::uint64_t step, std::vector<NamedShard> state, bool is_whole, Stream stream) {
    const auto save = begin_save(step, state, is_whole, stream);
    together(*group_, "copy checkpoint", [&] {
        with_staging(
            *group_->impl_, staging_, cannot_save(detail::checkpoint_path(dir_, step)), state, stream,
            [&](detail::Staging* staging) { save->copy(background_->memory(save->bytes_to_copy()), staging); });
        refuse_failed(*group_->impl_);
    });
    ProcessGroup& threads = background_->group_like(*group_);
    background_->begin(step);
    try {
        together(*group_, "start checkpoint", [&] {
            background_->start([save, &threads, fence = fence_] {
                together(threads, "write checkpoint", [&] { write_fenced(*save, fence.get(), nullptr); });
                detail::commit(threads, *save, fence.get());
            });
        });
    } catch (const Error&) {
        background_->cancel();
        throw;
    }
}

void Checkpointer::save(std::uint64_t step, List<NamedBuffer> state, Stream stream) {
    save_now(step, detail::as_shards(state.elements()), true, stream);
}

void Checkpointer::save(std::uint64_t step, List<NamedShard> state, Stream stream) {
    save_now(step, {state.elements().begin(), state.elements().end()}, false, stream);
}

void Checkpointer::save_async(std::uint64_t step, List<NamedBuffer> state, Stream stream) {
    save_later(step, detail::as_shards(state.elements()), true, stream);
}

void Checkpointer::save_async(std::uint64_t step, List<NamedShard> state, Stream stream) {
    save_later(step, {state.elements().begin(), state.elements().end()}, false, stream);
}

void Checkpointer::wait() {
    const auto step = background_->take();
    if (!step) return;
    try {
        together(*group_, "finish checkpoint", [&] { background_->finish(); });
    } catch (const Error&) {
        background_->cancel();
        throw;
    }
    if (group_->rank() == 0) detail::remove_older(dir_, *step, keep_);
}

std::optional<std::uint64_t> Checkpointer::latest() {
    wait();
    const std::string found = on_rank_0(*group_, "latest checkpoint", [&] { return newest_whole(dir_); });
    return ddprun::parse_number<std::uint64_t>(found);
}

void Checkpointer::load(std::uint64_t step, List<NamedBuffer> list, Stream stream) {
    wait();
    const std::vector<NamedShard> state = detail::as_shards(list.elements());
    require_same(*group_, *group_->impl_, step, state, Kind::kWhole, stream);
    together(*group_, "load checkpoint", [&] {
        if (group_->rank() != 0) return;
        const auto path = detail::existing_path(dir_, step);
        read_parts(*group_->impl_, staging_, detail::open_to_load(path, step), path, state, stream);
    });
    std::vector<Buffer> buffers;
    for (const NamedShard& shard : state) buffers.push_back(shard.part);
    detail::broadcast_in_pieces(*group_, buffers, 0, "load checkpoint", stream);
}

void Checkpointer::load(std::uint64_t step, List<NamedShard> list, Stream stream) {
    wait();
    const std::vector<NamedShard> state(list.elements().begin(), list.elements().end());
    require_same(*group_, *group_->impl_, step, state, Kind::kParts, stream);
    detail::GroupImpl& group = *group_->impl_;
    const auto path = detail::existing_path(dir_, step);
    std::optional<ddprun::checkpoint::StoredCheckpoint> file;  // if it is the one that rank 0 has opened
    const std::string hash = on_rank_0(*group_, "open checkpoint", [&] {
        file = detail::open_to_load(path, step);
        return std::to_string(file->head_hash);
    });
    together(*group_, "see checkpoint", [&] {
        if (group_->rank() == 0) return;
        auto own = ddprun::checkpoint::open_checkpoint(path);
        if (own && std::to_string(own->head_hash) == hash) file = std::move(*own);
    });
    const auto sees = detail::flags_of_all(*group_, file.has_value(), "see checkpoint");
    together(*group_, "load checkpoint", [&] {
        if (file) read_parts(group, staging_, *file, path, state, stream);
    });
    if (std::ranges::count(sees, false) == 0) return;
    const auto ranges = detail::ranges_of_all(*group_, state, Kind::kParts);
    for (int rank = 0; rank < group_->size(); ++rank) {
        if (sees[static_cast<std::size_t>(rank)]) continue;
        std::optional<detail::PartsInTransit> parts;
        together(*group_, "load checkpoint", [&] {
            parts.emplace(state, ranges, rank, group_->rank());
            if (group_->rank() == 0) read_parts(group, staging_, *file, path, parts->state(), {});
        });
        parts->send(*group_);
        together(*group_, "load checkpoint", [&] {
            if (group_->rank() != rank) return;
            with_staging(group, staging_, fmt::format("cannot load checkpoint {}", path.string()), state, stream,
                         [&](detail::Staging* staging) { parts->copy_to(state, staging); });
        });
    }
}

}  // namespace ddp
