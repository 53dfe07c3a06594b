#include "tests/fake_gpu/nccl/meeting.hpp"

#include <fmt/format.h>

#include <cstring>
#include <numeric>
#include <sstream>
#include <utility>

#include "common/ids.hpp"
#include "common/text/number.hpp"
#include "rendezvous/store/server/epoll_server.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/bootstrap/store_adapter.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/native/native.hpp"
#include "worker_lib/src/recorder/recording.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"
#include "worker_lib/src/util/timeouts.hpp"

namespace ddp::fake_nccl {
namespace {

using std::chrono::milliseconds;

constexpr const char* kMagic = "fake-nccl";
constexpr const char* kAddress = "127.0.0.1";  // all ranks of a test are processes of one machine

/// Serves the meetings of all unique ids of this process on one port. Returns the port.
int serve_store() {
    auto listening = ddprun::store::EpollServer::listen(kAddress, 0, {.own_user_only = true});
    if (!listening) throw Error(ErrorCode::System, listening.error().message);
    const int port = (*listening)->port();
    // Like the thread of NCCL's bootstrap it cannot be ended: ranks may come as long as the process lives.
    detail::start_signal_masked_thread("fake-nccl-store", [server = std::move(*listening)] {
        for (;;) (void)server->serve(std::chrono::nanoseconds(-1));
    }).detach();
    return port;
}

/// A store whose waits end when a communicator is aborted.
class AbortableStore final : public Store {
public:
    AbortableStore(std::shared_ptr<Store> store, const std::atomic<bool>& aborted)
        : store_(std::move(store)), aborted_(aborted) {}

    void set(std::string_view key, std::string_view value) override { store_->set(key, value); }
    std::string get(std::string_view key, milliseconds timeout) override {
        constexpr milliseconds kSlice{20};
        const auto deadline = detail::deadline_in(timeout);
        for (;;) {
            if (aborted_.load(std::memory_order_relaxed))
                throw Error(ErrorCode::Aborted, "the communicator is aborted");
            if (auto found = store_->try_get(key, kSlice)) return std::move(*found);
            if (ddprun::Clock::now() >= deadline) throw Error(ErrorCode::Timeout, fmt::format("no key '{}'", key));
        }
    }
    std::string set_once(std::string_view key, std::string_view value) override { return store_->set_once(key, value); }
    std::int64_t add(std::string_view key, std::int64_t amount) override { return store_->add(key, amount); }
    std::string local_address() const override { return store_->local_address(); }

private:
    const std::shared_ptr<Store> store_;
    const std::atomic<bool>& aborted_;
};

}  // namespace

abi::ncclUniqueId make_unique_id() {
    static const int port = serve_store();
    abi::ncclUniqueId id{};
    const std::string text = fmt::format("{} {} {} {}", kMagic, kAddress, port, ddprun::random_id());
    if (text.size() >= sizeof id.internal) throw Error(ErrorCode::System, "the unique id is too long");
    std::memcpy(id.internal, text.data(), text.size());
    return id;
}

std::optional<Meeting> read_unique_id(const abi::ncclUniqueId& id) {
    std::istringstream words(std::string(id.internal, ::strnlen(id.internal, sizeof id.internal)));
    std::string magic;
    Meeting meeting;
    words >> magic >> meeting.address >> meeting.port >> meeting.name;
    if (words.fail() || magic != kMagic) return std::nullopt;
    return meeting;
}

std::unique_ptr<ProcessGroup> meet(const Meeting& meeting, int rank, int ranks, const std::atomic<bool>& aborted) {
    // This copy of the library must not write the flight record, which belongs to the trainer's copy.
    detail::is_fork.store(true, std::memory_order_relaxed);
    Environment environment;
    environment.rank = rank;
    environment.master_addr = meeting.address;
    environment.master_port = meeting.port;
    detail::GroupSpec spec;
    spec.store = std::make_shared<AbortableStore>(detail::connect_store(environment, std::chrono::minutes(1)), aborted);
    spec.name = fmt::format("communicator {}", meeting.name.substr(0, 8));
    spec.path = spec.secret = meeting.name;
    spec.rank = rank;
    spec.world_size = ranks;
    spec.members.resize(static_cast<std::size_t>(ranks));
    std::iota(spec.members.begin(), spec.members.end(), 0);
    // The nodes of an emulated cluster, so that sums have the order of the native backend's.
    const std::string node = detail::process_variables()("GROUP_RANK").value_or("0");
    spec.node_rank = ddprun::parse_number<int>(node).value_or(0);
    spec.default_timeout = spec.init_timeout = detail::kForever;
    auto backend = detail::make_native_backend(spec);
    auto group = std::make_unique<detail::GroupImpl>(std::move(spec), std::move(backend));
    group->allow_any_thread();  // Communicator orders the streams
    return detail::GroupImpl::handle(std::move(group));
}

}  // namespace ddp::fake_nccl
