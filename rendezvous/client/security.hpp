#pragma once
// Names for programs that connect to a daemon, which do not include the transport itself.

#include "rendezvous/transport/tls.hpp"

namespace ddprun::client {

using transport::make_security;
using transport::Security;

}  // namespace ddprun::client
