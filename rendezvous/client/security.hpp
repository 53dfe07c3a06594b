#pragma once
// The rules for connections to other hosts, for programs that connect: the transport itself is not their business.

#include "rendezvous/transport/tls.hpp"

namespace ddprun::client {

using transport::make_security;
using transport::Security;

}  // namespace ddprun::client
