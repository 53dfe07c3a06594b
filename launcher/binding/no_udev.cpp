// A static libhwloc refers to libudev, which has no static form and is not on every node. It asks udev for the vendors
// of disks, which is more than --numa-binding reads, and goes on without an answer. Compiled only where libhwloc is
// linked statically.

extern "C" {

void* udev_new() { return nullptr; }
void* udev_unref(void* /*udev*/) { return nullptr; }
void* udev_device_new_from_subsystem_sysname(void* /*udev*/, const char* /*subsystem*/, const char* /*name*/) {
    return nullptr;
}
void* udev_device_unref(void* /*device*/) { return nullptr; }
const char* udev_device_get_property_value(void* /*device*/, const char* /*key*/) { return nullptr; }

}  // extern "C"
