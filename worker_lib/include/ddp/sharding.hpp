#pragma once
// ShardedParameters: each rank keeps a part of the parameters, and they are whole only while a unit computes.
//
//     ddp::ShardedParameters model(context.world(), units);
//     for (std::size_t u = 0; u < units.size(); ++u) net.forward(u, model.forward(u));     // whole inside the scope
//     model.begin_backward();
//     for (std::size_t u = units.size(); u-- > 0;) net.backward(u, model.backward(u));     // reduced at its end
//     model.finish_backward();
//     for (const ddp::Shard& shard : model.shards()) update(shard.values, shard.grad);     // this rank's part

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/buffer.hpp"
#include "ddp/checkpoint_state.hpp"
#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// Which memory the ranks of a group divide among themselves. Each includes those below it. Backwards with
/// Reduce::All have the same bits with all of them, if there are no ShardOptions::replicas or the group is a node.
enum class Sharding : std::uint8_t {
    Full,       ///< parameters too (FULL_SHARD, ZeRO-3). Copied units are gathered for forward and for backward, mapped
                ///< ones once after each update
    GradOp,     ///< gradients too: a rank holds two units of them, and its part (SHARD_GRAD_OP, ZeRO-2)
    Optimizer,  ///< the optimiser's state: shards() are this rank's part (ZeRO-1)
    None,       ///< nothing: every rank updates all parameters (NO_SHARD, as with GradientReducer)
};

/// The way in which a backward exchanges gradients. To accumulate over several backwards, use Shard or No for all of
/// them but the last one: the gradients of all are added, so scale the losses by their number.
enum class Reduce : std::uint8_t {
    All,    ///< exchanges all sums: Shard::grad is the average over the ranks then
    Shard,  ///< adds the sums of the group (averages, if reduce_dtype is narrower) to Shard::grad, which is no average
            ///< of all yet; replicas exchange theirs in the next All
    No,     ///< sends nothing: each rank keeps whole gradients for the next backward that sends (no_sync)
};

/// Options of a ShardedParameters. The same on every rank.
struct ShardOptions {
    Sharding sharding = Sharding::Full;  ///< what the ranks of the group divide
    /// The ranks that hold the same part, with which its gradients are reduced as well (HYBRID_SHARD). Must outlive
    /// the constructor alone. Not with Sharding::None, where the group's ranks are the replicas.
    ProcessGroup* replicas = nullptr;
    /// The type in which units are gathered, and which scopes show: that of the parameters, or bf16 or f16 for f32.
    std::optional<DType> param_dtype = std::nullopt;
    /// The type in which gradients are computed and reduced: that of the parameters, or bf16 or f16 for f32.
    std::optional<DType> reduce_dtype = std::nullopt;
    /// How many units are gathered ahead of the one that computes. If units are copied, Sharding::Full needs memory
    /// for prefetch + 1 of them.
    int prefetch = 1;
    /// true: if all ranks of the group share a node, a unit is no copy but the pages of their parts, read-only, unless
    /// units have more than 16,384 parts together: a process may have few mappings. false: units are always copied, for
    /// ranks that read the memory of other NUMA nodes slowly.
    bool mapped = true;
};

/// This rank's part of one parameter.
struct Shard {
    std::size_t param = 0;  ///< index of the parameter: those of unit 0 come first, then those of unit 1 …
    std::size_t begin = 0;  ///< the first element of the parameter that is in the part
    Buffer values = {};     ///< what an optimiser updates, of the parameter's type
    Buffer grad = {};  ///< the average of all ranks' gradients after finish_backward(Reduce::All), of the same type
};

/// The memory that a ShardedParameters has on each rank, in bytes. All ranks have the same.
struct ShardPlan {
    /// Parameters that compute together.
    struct Unit {
        std::string name;             ///< of its first parameter
        std::size_t params = 0;       ///< how many it has
        std::size_t elements = 0;     ///< of all of them
        std::size_t part_bytes = 0;   ///< one rank's part, with padding
        std::size_t whole_bytes = 0;  ///< the unit while it is whole, of ShardOptions::param_dtype, with padding
    };
    Sharding sharding = Sharding::Full;  ///< what the ranks divide
    std::size_t ranks = 1;               ///< among which each unit is divided
    std::vector<Unit> units;             ///< in the order of the constructor
    std::size_t largest = 0;             ///< index of the largest unit
    bool mapped = false;                 ///< whole units are the pages of all ranks' parts (ShardOptions::mapped)
    bool params_stay = false;      ///< a unit stays whole until the update; else until another one needs its memory
    bool grads_stay = false;       ///< all units have whole gradients of their own; else two at a time
    std::size_t parts = 0;         ///< of the parameters, also as param_dtype; 0: they lie inside whole units
    std::size_t grad_parts = 0;    ///< of the gradients
    std::size_t whole_params = 0;  ///< for units that are whole. More scopes at a time need more
    std::size_t whole_grads = 0;   ///< for gradients that are computed and reduced. Reduce::No needs more
    std::size_t array = 0;         ///< an optimiser's array, of the parameters' type; not in total()

    /// Returns the sum.
    [[nodiscard]] std::size_t total() const { return parts + grad_parts + whole_params + whole_grads; }
};

/// Returns a table of several lines, the last one with a newline.
[[nodiscard]] std::string to_string(const ShardPlan& plan);

/// Owns the parameters of a model in parts, one for each rank, and their gradients. A unit is a list of parameters that
/// compute together: they are gathered by one all_gather before they compute, and their gradients are reduced by one
/// reduce_scatter afterwards. The tensors of a unit lie end to end, aligned to 32 elements, and each rank owns an equal
/// range of them, so that no tensor has to be divisible.
///
/// Inside a node nothing is gathered (ShardOptions::mapped): each parameter is in the node's memory once, and the ranks
/// only wait for each other's updates. Ranges are whole pages then, and Full needs no more time or memory than GradOp.
///
/// It splits two groups of its own, one for gathers and one for reductions, so a gather ahead never waits behind a
/// reduction. Host memory: groups on NCCL are refused. One owner thread makes all calls. Every rank of the
/// group opens the same scopes in the same order, else Error{Mismatch} names both units. Errors call the k-th backward
/// step k. After an error it is unusable, here and on the peers, which get Error{Aborted} or {PeerLost} instead of
/// waiting. The error names the unit, or "update" if it comes between the last unit and the update.
class ShardedParameters {
    class Impl;

public:
    /// A unit whose parameters are whole while this object lives, which must not outlive the ShardedParameters. It may
    /// be moved, for trainers that compute in callbacks. If an exception ends it, the ShardedParameters fails on all
    /// ranks.
    class Scope {
    public:
        /// Takes over the scope, which ends with this object then.
        Scope(Scope&& other) noexcept;
        Scope& operator=(Scope&&) = delete;
        ~Scope();
        /// Returns parameter `i` of the unit, whole, of ShardOptions::param_dtype. Do not write to it: an optimiser
        /// writes to shards(). Inside a node (ShardOptions::mapped) a write is a SIGSEGV.
        [[nodiscard]] ConstBuffer param(std::size_t i) const;
        /// Returns the same as a span of T. Throws Error{InvalidArgument} if it is of another type.
        template <Element T>
        [[nodiscard]] std::span<const T> param(std::size_t i) const {
            return param(i).as<T>();
        }

    private:
        friend class ShardedParameters;
        friend class GradScope;
        Scope(Impl& impl, std::size_t unit, bool with_grad);

        Impl* impl_;  ///< null: moved from
        std::size_t unit_;
        bool with_grad_;
        int exceptions_;  ///< how many were passing when it began
    };
    /// A Scope of a backward. Its end hands the unit's gradients to their reduction, without waiting for it.
    class GradScope : public Scope {
    public:
        /// Returns the memory for the gradient of parameter `i` of the unit, whole, of ShardOptions::reduce_dtype. The
        /// trainer writes all of it: it holds unspecified values before, also when gradients are accumulated.
        [[nodiscard]] Buffer grad(std::size_t i) const;
        /// Returns the same as a span of T. Throws Error{InvalidArgument} if it is of another type.
        template <Element T>
        [[nodiscard]] std::span<T> grad(std::size_t i) const {
            return grad(i).as<T>();
        }

    private:
        friend class ShardedParameters;
        using Scope::Scope;
    };

    /// Divides the parameters of `units` among the ranks of `group`. Collective. All parameters have the same type, and
    /// are zero. Throws Error{InvalidArgument} for a unit without elements, other types than f32 and f64 (bf16 and f16
    /// are for ShardOptions::param_dtype), types that an option cannot have and groups on NCCL, and Error{Mismatch}
    /// naming the ranks and the first difference.
    ShardedParameters(ProcessGroup& group, std::vector<std::vector<ParamSpec>> units, ShardOptions options = {});
    /// Frees the memory. In a backward it aborts its groups.
    ~ShardedParameters();
    /// Leaves the other one unusable: it may only be destroyed. Scopes stay valid.
    ShardedParameters(ShardedParameters&&) noexcept;

    /// Writes the values of this rank's part: `values` is called with the index of a parameter, its first element in
    /// the part, and the memory. So no rank ever holds the whole model. All ranks call it. Not while a scope exists.
    /// Ranks that hold the same part (replicas; all, with Sharding::None) have to write the same values: nothing
    /// compares them.
    void fill(const std::function<void(std::size_t param, std::size_t begin, Buffer part)>& values);
    /// Declares that shards() will be written before the next scope, so that units are gathered again. Needed only if
    /// there was a scope after finish_backward(Reduce::All): an evaluation before the update, for example. All ranks
    /// call it, before they write: it waits until no rank reads parameters. Not while a scope exists.
    void changed();

    /// Gathers a unit, unless it is whole already. Begins gathers of the units that followed it the last time.
    [[nodiscard]] Scope forward(std::size_t unit);
    /// Begins a backward. Every rank passes the same `reduce`.
    void begin_backward(Reduce reduce = Reduce::All);
    /// Does the same as forward(), and takes memory for the gradients. Each unit has one such scope per backward.
    [[nodiscard]] GradScope backward(std::size_t unit);
    /// Waits for the reductions. Throws Error{InvalidArgument} naming the units that had no scope in this backward.
    /// After Reduce::All the optimiser may update shards(), and the next scopes gather the new values: it waits until
    /// no rank has a scope. Throws Error{InvalidArgument} while this rank has one.
    void finish_backward();

    /// Returns the norm of all gradients, and multiplies them by max_norm / (norm + 1e-6) if that is below 1, as
    /// torch.nn.utils.clip_grad_norm_ does. Collective. The norm is the same on all ranks. If it is not finite, nothing
    /// is multiplied: skip the update. With infinity it only measures. After a backward with Reduce::All. Its last bits
    /// may differ between strategies, which add in other orders.
    double clip(double max_norm);

    /// Returns this rank's part, in the order of the parameters. A rank may have none. The memory stays where it is.
    [[nodiscard]] std::span<const Shard> shards() const;
    /// Returns the number of elements in shards(): the length of an optimiser's arrays.
    [[nodiscard]] std::size_t size() const;

    /// Returns the memory that each rank needs, and which unit is the largest. Other units change it: see
    /// units_by_size().
    [[nodiscard]] const ShardPlan& plan() const;

    /// Copies a whole parameter to `out`, of its count and type, on rank `root` of the group; -1: on all ranks.
    /// Collective. `out` is ignored elsewhere. Not in a backward. Wrong arguments are refused on this rank
    /// alone, as in a collective of ProcessGroup.
    void whole(std::size_t param, Buffer out, int root = -1);

    /// Returns this rank's part of every parameter, for a Checkpointer: the values, or with arguments the elements of
    /// `parallel` that belong to them, as `<parameter><suffix>`. `parallel` is an array of size() elements of an
    /// optimiser, in the order of shards(). A load writes to shards(): see changed(). Throws Error{InvalidArgument} for
    /// another number of elements, and while a scope is open.
    [[nodiscard]] std::vector<NamedShard> state(std::string_view suffix = {}, Buffer parallel = {}) const;

private:
    std::unique_ptr<Impl> impl_;
};

/// Divides a list of parameters into units of about `elements` each, in order: a unit ends with the parameter that
/// reaches the number. Pass at least 1,024 times the number of ranks: inside a node each rank's part is whole pages
/// (ShardOptions::mapped), and smaller units waste memory.
[[nodiscard]] std::vector<std::vector<ParamSpec>> units_by_size(List<ParamSpec> params, std::size_t elements);

}  // namespace ddp
