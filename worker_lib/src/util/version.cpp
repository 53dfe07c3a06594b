#include "ddp/version.hpp"

#define DDP_QUOTE(text) #text
#define DDP_TEXT(number) DDP_QUOTE(number)

namespace ddp {

std::string_view version() {
    return DDP_TEXT(DDP_VERSION_MAJOR) "." DDP_TEXT(DDP_VERSION_MINOR) "." DDP_TEXT(DDP_VERSION_PATCH);
}

}  // namespace ddp
