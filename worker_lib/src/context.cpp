#include "ddp/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "worker_lib/src/backend_choice.hpp"
#include "worker_lib/src/environment.hpp"
#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/group.hpp"
#include "worker_lib/src/local_store.hpp"
#include "worker_lib/src/store_adapter.hpp"

namespace ddp {

namespace {

using detail::GroupSpec;
using std::chrono::milliseconds;

// PyTorch's defaults.
constexpr milliseconds kNcclTimeout = std::chrono::minutes(10);
constexpr milliseconds kNativeTimeout = std::chrono::minutes(30);

GroupSpec world_spec(const Environment& environment, std::shared_ptr<Store> store, const InitOptions& options) {
    GroupSpec spec;
    spec.name = "world";
    spec.rank = environment.rank;
    spec.members.resize(static_cast<std::size_t>(environment.world_size));
    std::iota(spec.members.begin(), spec.members.end(), 0);
    spec.node_rank = environment.node_rank;
    spec.generation = environment.generation;
    spec.store = std::move(store);
    spec.init_timeout = options.init_timeout;
    spec.device = options.device >= 0 ? options.device : environment.local_rank;
    return spec;
}

/// Every rank must take the same one: a single rank without a device keeps all of them on the CPU.
Backend agree_on_backend(const GroupSpec& spec, Backend asked) {
    if (asked == Backend::Native) return asked;
    const auto choice = detail::choose_backend(asked, detail::probe_nccl(spec.device), detail::gpu_expected_here());
    const auto choices = detail::exchange(spec, "backend", to_string(choice.backend));
    const auto native = std::ranges::find(choices, to_string(Backend::Native));
    if (native == choices.end()) return Backend::Nccl;
    const auto blocker = static_cast<int>(native - choices.begin());
    if (spec.rank == blocker && !choice.reason.empty()) {
        std::fputs(fmt::format("[ddp] rank {}: {}\n", spec.rank, choice.reason).c_str(), stderr);
    }
    return Backend::Native;
}

}  // namespace

Context::Context(Environment environment, std::shared_ptr<Store> store, const InitOptions& options)
    : environment_(std::move(environment)), store_(std::move(store)) {
    detail::check(environment_);
    GroupSpec spec = world_spec(environment_, store_, options);
    const Backend backend = agree_on_backend(spec, options.backend);
    const milliseconds usual = backend == Backend::Nccl ? kNcclTimeout : kNativeTimeout;
    spec.default_timeout = options.timeout.count() == 0 ? usual : options.timeout;
    world_ = detail::make_group(std::move(spec), backend);
}

Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

Context init_from_env(const InitOptions& options) {
    const Environment environment = detail::read_environment(detail::process_variables());
    auto store = environment.master_port == 0 ? detail::make_local_store()
                                              : detail::connect_store(environment, options.init_timeout);
    return {environment, std::move(store), options};
}

}  // namespace ddp
