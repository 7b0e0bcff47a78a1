#pragma once
// A variable of the environment, for as long as a test needs it.

#include <stdlib.h>

#include <optional>
#include <string>

namespace graphpipe::tests {

/// Sets a variable, or unsets it where there is no value, and puts back what was there.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() { set(old_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) setenv(name_, value->c_str(), 1);
    else unsetenv(name_);
  }
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace graphpipe::tests
