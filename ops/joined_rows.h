#pragma once
// Concatenates the tables of a family's parts.

#include <initializer_list>
#include <vector>

#include "ops/op_def.h"

namespace graphpipe::ops {

inline std::vector<OpDef> joined(std::initializer_list<std::vector<OpDef>> parts) {
  std::vector<OpDef> rows;
  for (const std::vector<OpDef>& part : parts) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace graphpipe::ops
