#pragma once
// A generated folder on disk: written so that an interrupted run leaves the old one or the new one usable, and so that
// files which did not change keep their time stamp: the build then compiles only what did.

#include <string>
#include <system_error>
#include <vector>

#include "codegen/source_file.h"
#include "driver/launch/weight_files.h"
#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::driver {

/// kEnvironment: what the file system says of a path of the folder.
Diagnostic disk_problem(const std::string& path, const std::error_code& error);

/// Replaces the file atomically (temporary file beside it, fsync, rename); leaves it alone where the content is equal.
/// Errors: kEnvironment.
Status write_if_changed(const std::string& path, std::string_view content);

/// A folder is ours if it holds no file, has our manifest, or holds a plan of ours; even there a file that the manifest
/// does not list is replaced only where it begins as ours does, and nothing is written or removed through a symbolic
/// link. Writes the sources below `folder`, removes sources of an earlier generation that are no longer part of it, and
/// writes the parameters' initial values (weight_files.h). The manifest comes last, after everything it lists.
/// Returns notes. Errors: kUsage (not our folder), kUnsafePath, kEnvironment, kUnreadableFile; kBadParameter where two
/// parameters have one name.
Result<FolderNotes> write_folder(const std::string& folder, const std::vector<codegen::SourceFile>& sources,
                                 const ir::Graph& graph, const WeightOrigin& origin, const std::string& plan_digest);

/// Whether the folder's sources are those that the manifest lists, none changed and none added: what is compiled is
/// what was generated. The weights are not read. Errors: kMalformedFile, one for each such file; kUnreadableFile.
Status check_sources(const std::string& folder);

}  // namespace graphpipe::driver
