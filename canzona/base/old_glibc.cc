// Functions that glibc has had only since 2.35 and 2.36, and that a C++ runtime
// linked statically on a newer system asks for. Wheels have them inside, so
// that they load where glibc is 2.34 (RHEL 9); nothing else is built with this
// file.
#include <features.h>

#if defined(__GLIBC__)
#include <dlfcn.h>
#include <link.h>
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

namespace {

struct Search {
  uintptr_t address = 0;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  uintptr_t frames = 0;  // the segment that unwinding needs
};

// Looks whether a loaded object contains the address; 1 ends the search.
int look(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  uintptr_t frames = 0;
  bool found = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_EH_FRAME) frames = begin;
    if (part.p_type != PT_LOAD || search.address < begin ||
        search.address >= begin + part.p_memsz)
      continue;
    found = true;
    search.begin = begin;
    search.end = begin + part.p_memsz;
  }
  search.frames = frames;
  return found ? 1 : 0;
}

}  // namespace

#if defined(DLFO_STRUCT_HAS_EH_DBASE)
// Returns 0 if it has filled `result`, as glibc's does.
[[gnu::visibility("hidden")]] int own_find_object(
    void* address, dl_find_object* result) noexcept asm("_dl_find_object");
int own_find_object(void* address, dl_find_object* result) noexcept {
  Search search{.address = reinterpret_cast<uintptr_t>(address)};
  if (dl_iterate_phdr(look, &search) == 0 || search.frames == 0) return -1;
  *result = {};
  result->dlfo_map_start = reinterpret_cast<void*>(search.begin);
  result->dlfo_map_end = reinterpret_cast<void*>(search.end);
  result->dlfo_eh_frame = reinterpret_cast<void*>(search.frames);
  return 0;
}
#endif

// For std::random_device.
[[gnu::visibility("hidden")]] uint32_t own_random() noexcept asm("arc4random");
uint32_t own_random() noexcept {
  uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) std::abort();
  return number;
}

#endif
