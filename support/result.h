#pragma once
// Result<T>: a value, or the diagnostics that say why there is none. No exceptions cross folders.

#include <optional>
#include <utility>

#include "support/check.h"
#include "support/diagnostic.h"

namespace graphpipe {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Diagnostic problem) : problems_{std::move(problem)} {}
  Result(const Diagnostics& problems) : problems_(problems) { GP_CHECK(!problems_.empty()); }
  Result(Diagnostics&& problems) : problems_(std::move(problems)) { GP_CHECK(!problems_.empty()); }

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  T& value() & {
    GP_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    GP_CHECK(ok());
    return *value_;
  }
  T&& value() && {
    GP_CHECK(ok());
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

  /// Why there is no value; empty where there is one.
  const Diagnostics& problems() const& { return problems_; }
  Diagnostics&& problems() && { return std::move(problems_); }

 private:
  std::optional<T> value_;
  Diagnostics problems_;
};

/// A Result without a value: `return Ok{};` or diagnostics.
struct Ok {};
using Status = Result<Ok>;

}  // namespace graphpipe

#define GP_CONCAT_INNER(a, b) a##b
#define GP_CONCAT(a, b) GP_CONCAT_INNER(a, b)
#define GP_TRY_IMPL(result, declaration, expression)     \
  auto&& result = (expression);                          \
  if (!result.ok()) return std::move(result).problems(); \
  declaration = std::move(result).value()
/// GP_TRY(Graph graph, import(...)): takes the value, or returns the problems from the enclosing function.
#define GP_TRY(declaration, ...) GP_TRY_IMPL(GP_CONCAT(gp_result_, __LINE__), declaration, (__VA_ARGS__))
/// GP_TRY_VOID(check(...)): returns the problems from the enclosing function, if there are any.
#define GP_TRY_VOID(...)                                                       \
  if (auto&& GP_CONCAT(gp_status_, __LINE__) = (__VA_ARGS__); !GP_CONCAT(gp_status_, __LINE__).ok()) \
  return std::move(GP_CONCAT(gp_status_, __LINE__)).problems()
