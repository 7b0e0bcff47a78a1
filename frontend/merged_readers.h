#pragma once
// Which values of the module's program a tensor stands for that an exporter's optimiser has computed.
//
// The optimiser leaves one of several equal tensors, so that values of parameters which began alike are one: PoolFormer
// multiplies by layer_scale_1 as %unsqueeze_1 and by layer_scale_2 as %unsqueeze_3, and the file has the first alone.
// The calls of the nodes that read it name the values. Of which parameter one is follows from the code that makes the
// call, where that says so: from its line, if it is that of a call whose parameter is known (the same line of another
// layer), or names one parameter of the module.

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/exported_call.h"
#include "frontend/model.h"
#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// A value that nodes read as the tensor of another.
struct MergedValue {
  std::string name, parameter;
  std::vector<size_t> readers;
};

class MergedReaders {
 public:
  /// Needs: the body as it is while it is asked.
  MergedReaders(const GraphBody& body, const ExportSignature& signature);

  /// The values beside the tensor's own, which is computed from the parameter. Nothing where it is not sure what a node
  /// reads, and where none reads the tensor under its name.
  std::optional<std::vector<MergedValue>> merged_into(const std::string& tensor, const std::string& parameter) const;

 private:
  struct Reading;
  std::optional<Reading> reading_of(size_t node, const std::string& tensor) const;
  std::optional<std::string> parameter_of(const Reading& reading, const Reading& known,
                                          const std::string& parameter) const;
  std::set<std::string> named_by(const Reading& reading) const;

  const GraphBody& body_;
  const ExportSignature& signature_;
  std::map<std::string, std::vector<size_t>> nodes_;  // by what they read
  std::set<std::string> made_;                        // values and tensors of the file, results of its calls
  std::set<std::string> told_;                        // parameters that calls or notes of the optimiser name
};

}  // namespace graphpipe::frontend
