#pragma once
// PrefixStore: a part of a store for one purpose, named by a prefix; and prefixes within prefixes, as PyTorch nests
// them: PrefixStore(PrefixStore(client, "a"), "b") has the key k at "a/b/k". A view: the client outlives it.
//
// PyTorch's own stores put one '/' before every key: PrefixStore(client, "") reaches what `store.get(k)` does there.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/client.hpp"

namespace ddprun::store {

class PrefixStore {
public:
    PrefixStore(Client& client, std::string_view prefix) : client_(&client), prefix_(std::string(prefix) + "/") {}
    PrefixStore(const PrefixStore& outer, std::string_view prefix)
        : client_(outer.client_), prefix_(outer.prefix_ + std::string(prefix) + "/") {}

    [[nodiscard]] std::string key(std::string_view name) const { return prefix_ + std::string(name); }
    [[nodiscard]] Client& client() const { return *client_; }

    [[nodiscard]] Result<void> set(std::string_view name, std::string_view value) const {
        return client_->set(key(name), value);
    }
    [[nodiscard]] Result<std::string> get(std::string_view name, TimePoint deadline) const {
        return client_->get(key(name), deadline);
    }
    [[nodiscard]] Result<std::vector<std::string>> multi_get(std::span<const std::string> names,
                                                             TimePoint deadline) const {
        return client_->multi_get(keys(names), deadline);
    }
    [[nodiscard]] Result<std::int64_t> add(std::string_view name, std::int64_t amount) const {
        return client_->add(key(name), amount);
    }
    [[nodiscard]] Result<void> append(std::string_view name, std::string_view value) const {
        return client_->append(key(name), value);
    }
    [[nodiscard]] Result<std::string> compare_set(std::string_view name, std::string_view expected,
                                                  std::string_view desired) const {
        return client_->compare_set(key(name), expected, desired);
    }
    [[nodiscard]] Result<void> wait(std::span<const std::string> names, TimePoint deadline) const {
        return client_->wait(keys(names), deadline);
    }
    [[nodiscard]] Result<bool> check(std::span<const std::string> names) const { return client_->check(keys(names)); }
    [[nodiscard]] Result<bool> delete_key(std::string_view name) const { return client_->delete_key(key(name)); }

private:
    [[nodiscard]] std::vector<std::string> keys(std::span<const std::string> names) const {
        std::vector<std::string> all;
        for (const std::string& name : names) all.push_back(key(name));
        return all;
    }

    Client* client_;
    std::string prefix_;
};

}  // namespace ddprun::store
