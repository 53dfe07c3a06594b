#include "rendezvous/store/server/server.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <utility>

#include "common/clock.hpp"
#include "rendezvous/store/server/epoll_server.hpp"

namespace ddprun::store {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using namespace std::chrono_literals;

/// The time for which the server serves before the io_context runs other handlers.
constexpr auto kSlice = 2ms;

}  // namespace

/// Pump: serves when the epoll set is readable. Its pending operations keep it alive, so that the StoreServer may be
/// destroyed first.
class StoreServer::Pump : public std::enable_shared_from_this<Pump> {
public:
    Pump(const asio::any_io_executor& executor, std::unique_ptr<EpollServer> server)
        : server_(std::move(server)), readable_(executor, server_->poll_fd()), timer_(executor) {}
    ~Pump() { close(); }
    Pump(const Pump&) = delete;
    Pump& operator=(const Pump&) = delete;

    void wait() {
        arm_timer();
        readable_.async_wait(asio::posix::stream_descriptor::wait_read,
                             [self = shared_from_this()](const error_code& failed) {
                                 if (!failed) self->serve();
                             });
    }

    void close() {
        if (!readable_.is_open()) return;
        (void)readable_.release();  // the descriptor is the server's; this cancels the wait
        timer_.cancel();
        server_->close();
    }

    void adopt(UniqueFd socket) {
        server_->adopt(std::move(socket));
        arm_timer();  // after a failure the server has something to do later
    }

    void admit_hosts(AdmitsHost admits) { server_->admit_hosts(std::move(admits)); }

    void screen_clients(ScreensClient screens) { server_->screen_clients(std::move(screens)); }

    void run(asio::io_context& io) {
        server_->serve_until_signal([&] {
            io.poll();
            return !io.stopped();
        });
    }

    [[nodiscard]] const EpollServer& server() const { return *server_; }

private:
    void serve() {
        if (!readable_.is_open()) return;
        for (const TimePoint until = Clock::now() + kSlice; Clock::now() < until;) {
            // With fewer than two connections ready, another look here costs more than the one in wait().
            if (server_->serve(0ns) < 2 && !server_->has_ready()) return wait();
        }
        asio::post(readable_.get_executor(), [self = shared_from_this()] { self->serve(); });
    }

    void arm_timer() {
        const auto due = server_->deadline();
        if (due == armed_for_) return;
        armed_for_ = due;
        timer_.cancel();
        if (!due) return;
        timer_.expires_at(*due);
        timer_.async_wait([self = shared_from_this()](const error_code& failed) {
            if (failed || !self->readable_.is_open()) return;
            self->armed_for_.reset();
            // No connection is served here: poll_fd() would not become readable for one that has more to be served.
            self->server_->do_due_work();
            self->arm_timer();
        });
    }

    std::unique_ptr<EpollServer> server_;
    asio::posix::stream_descriptor readable_;
    asio::steady_timer timer_;
    std::optional<TimePoint> armed_for_;
};

Result<std::unique_ptr<StoreServer>> StoreServer::listen(const asio::any_io_executor& executor,
                                                         const asio::ip::address& address, std::uint16_t port,
                                                         const Options& options) {
    auto server = EpollServer::listen(address.to_string(), port, options);
    if (!server) return server.error();
    auto pump = std::make_shared<Pump>(executor, std::move(*server));
    pump->wait();
    return std::unique_ptr<StoreServer>(new StoreServer(std::move(pump)));
}

StoreServer::~StoreServer() { close(); }

void StoreServer::screen_clients(std::function<void(UniqueFd, const std::string&)> screens) {
    pump_->screen_clients(std::move(screens));
}
void StoreServer::admit_hosts(std::function<bool(const std::string&)> admits) { pump_->admit_hosts(std::move(admits)); }

std::uint16_t StoreServer::port() const { return pump_->server().port(); }

Statistics StoreServer::statistics() const { return pump_->server().statistics(); }

void StoreServer::adopt(UniqueFd socket) { pump_->adopt(std::move(socket)); }

bool StoreServer::has_client_beside(int socket) const { return pump_->server().has_client_beside(socket); }

void StoreServer::run(asio::io_context& io) { pump_->run(io); }

void StoreServer::close() { pump_->close(); }

}  // namespace ddprun::store
