#pragma once
// Overloaded: combines several lambdas into one visitor for std::visit.

namespace ddprun {

template <typename... Handlers>
struct Overloaded : Handlers... {
    using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace ddprun
