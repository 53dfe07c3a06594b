// Two functions of glibc 2.35 and 2.36 that the static libgcc and libstdc++ of g++ 12 call. With these the programs
// need glibc 2.34 only (docs/design/034). They are hidden: libraries that a program loads call those of the system.

#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

/// Returns a random number, for std::random_device.
extern "C" std::uint32_t arc4random() noexcept {
    std::uint32_t number = 0;
    while (::getrandom(&number, sizeof number, 0) != sizeof number) {
        if (errno != EINTR) std::abort();
    }
    return number;
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE  // else this glibc is older, and so is what its libgcc calls
static_assert(DLFO_STRUCT_HAS_EH_DBASE == 0, "libgcc needs dlfo_eh_dbase on this kind of machine, too");

namespace {

struct Search {
    ElfW(Addr) address;
    dl_find_object& found;
};

/// Stops at the object that contains the address.
int look_at(dl_phdr_info* object, std::size_t /*size*/, void* argument) {
    auto& [address, found] = *static_cast<Search*>(argument);
    bool contains = false;
    found.dlfo_eh_frame = nullptr;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto& segment = object->dlpi_phdr[i];
        const ElfW(Addr) begin = object->dlpi_addr + segment.p_vaddr;
        if (segment.p_type == PT_LOAD && address - begin < segment.p_memsz) contains = true;
        if (segment.p_type == PT_GNU_EH_FRAME) found.dlfo_eh_frame = reinterpret_cast<void*>(begin);
    }
    return contains ? 1 : 0;
}

}  // namespace

/// Finds the table for exceptions of the object that contains `address`, for libgcc's unwinder. Sets `dlfo_eh_frame`,
/// which the unwinder reads, and nothing else. Returns 0, or -1 if there is no such object.
extern "C" int _dl_find_object(void* address, dl_find_object* found) noexcept {
    Search search{reinterpret_cast<ElfW(Addr)>(address), *found};
    return ::dl_iterate_phdr(look_at, &search) == 1 ? 0 : -1;
}
#endif
