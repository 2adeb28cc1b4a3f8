// What functions behind a C interface do with exceptions: none crosses; its message goes into the caller's buffer.

#pragma once

#include <cstddef>
#include <cstring>
#include <exception>

#include <c10/util/Exception.h>

namespace hds {

struct Message {
  char* text;
  size_t size;

  void set(const char* what) const {
    if (size == 0) return;
    std::strncpy(text, what, size - 1);
    text[size - 1] = '\0';
  }
};

// Runs `body`; what it throws becomes the message. 0, or 1 with a message.
template <typename Body>
int guarded(Message message, Body body) {
  try {
    body();
    return 0;
  } catch (const c10::Error& error) {
    message.set(error.what_without_backtrace());
  } catch (const std::exception& error) {
    message.set(error.what());
  } catch (...) {
    message.set("unknown C++ exception");
  }
  return 1;
}

}  // namespace hds
