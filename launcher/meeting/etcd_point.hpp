#pragma once
// EtcdPoint: a meeting point in etcd, through the JSON gateway of its v3 API. docs/design/018 has the requests.

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/meeting/etcd_messages.hpp"
#include "launcher/meeting/https.hpp"
#include "launcher/meeting/meeting_point.hpp"

namespace ddprun::launcher {

struct EtcdSettings {
    std::vector<Endpoint> servers;  ///< at least one; of one cluster
    TlsSettings tls;
    std::string user;  ///< empty: no login
    std::string password;
    std::chrono::milliseconds read_timeout{60'000};  ///< of one call, over all its tries
};

/// A MeetingPoint in etcd. It tries its servers in turn until one answers, and begins with the one that did so last.
/// Between calls it has neither a connection nor a thread, so the process may fork.
class EtcdPoint final : public MeetingPoint {
public:
    explicit EtcdPoint(EtcdSettings settings) : settings_(std::move(settings)) {}

    [[nodiscard]] Result<std::optional<Published>> read(const std::string& name) override;
    [[nodiscard]] Result<Claim> claim(const std::string& name, const std::string& value,
                                      const std::optional<Published>& replaces) override;
    [[nodiscard]] Result<void> withdraw(const std::string& name, const Published& mine) override;
    [[nodiscard]] std::string where(const std::string& name) const override;
    [[nodiscard]] std::string removal(const std::string& name) const override;
    [[nodiscard]] std::string own_address() const override { return own_address_; }

private:
    [[nodiscard]] Result<std::string> call(std::string_view path, const std::string& body,
                                           std::chrono::milliseconds limit);
    [[nodiscard]] Result<std::string> try_call(std::string_view path, const std::string& body, TimePoint deadline);
    [[nodiscard]] Result<std::string> post(std::string_view path, const std::string& body, TimePoint deadline);
    [[nodiscard]] Error explain(const etcd::FailedAnswer& failed, TimePoint deadline) const;
    [[nodiscard]] Error no_gateway(const std::string& answered, TimePoint deadline) const;
    [[nodiscard]] const Endpoint& server() const { return settings_.servers[current_]; }
    [[nodiscard]] std::string servers() const;
    [[nodiscard]] std::string tls_hint() const;

    EtcdSettings settings_;
    std::size_t current_ = 0;  ///< of settings_.servers
    std::string token_;        ///< of the login; empty: none yet
    std::string own_address_;
};

}  // namespace ddprun::launcher
