#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/checkpoint/directory.hpp"
#include "worker_lib/src/checkpoint/file.hpp"
#include "worker_lib/src/checkpoint/manifest.hpp"
#include "worker_lib/src/checkpoint/save_fence.hpp"
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

/// Throws on all ranks unless they have passed the same step, names, types and sizes. Collective. An error that
/// only one rank has found is part of the comparison, so that the others do not wait for that rank.
void require_same(ProcessGroup& group, std::uint64_t step, std::span<const NamedBuffer> state) {
    std::vector<std::string> items{fmt::format("step {}", step)};
    for (std::size_t i = 0; i < state.size(); ++i) items.push_back(detail::describe(i, state[i]));
    std::exception_ptr refusal;
    try {
        detail::check_state(state);
    } catch (const Error& error) {
        refusal = std::current_exception();
        items.insert(items.begin(), error.what());
    }
    detail::require_agreement(group, "the checkpoint", items,
                              "Call save and load with the same step, names, types and sizes on every rank.",
                              kDiskTimeout);
    if (refusal) std::rethrow_exception(refusal);
}

}  // namespace

Checkpointer::Checkpointer(std::filesystem::path dir, ProcessGroup& group, CheckpointerOptions options)
    : dir_(std::move(dir)), group_(&group), keep_(options.keep) {
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

void Checkpointer::save(std::uint64_t step, List<NamedBuffer> list) {
    const std::span<const NamedBuffer> state = list.elements();
    require_same(*group_, step, state);
    on_rank_0(*group_, "save checkpoint", [&] {
        fence_->take_over();
        const detail::Manifest manifest = detail::make_manifest(step, group_->size(), state);
        const auto path = detail::checkpoint_path(dir_, step);
        detail::commit(detail::write_temporary(path, *fence_, manifest, state), path, *fence_, manifest);
        return std::uint64_t{0};
    });
    if (group_->rank() == 0) detail::remove_older(dir_, step, keep_);
}

std::optional<std::uint64_t> Checkpointer::latest() {
    const std::uint64_t found = on_rank_0(*group_, "latest checkpoint", [&] { return newest_whole_plus_1(dir_); });
    if (found == 0) return std::nullopt;
    return found - 1;
}

void Checkpointer::load(std::uint64_t step, List<NamedBuffer> list) {
    const std::span<const NamedBuffer> state = list.elements();
    require_same(*group_, step, state);
    on_rank_0(*group_, "load checkpoint", [&] {
        detail::read_checkpoint(detail::checkpoint_path(dir_, step), step, state);
        return std::uint64_t{0};
    });
    std::vector<Buffer> buffers;
    for (const NamedBuffer& named : state) buffers.push_back(named.buffer);
    detail::broadcast_in_pieces(*group_, buffers, 0, "load checkpoint");
}

}  // namespace ddp
