"""A graph database that lives in a folder or a bucket.

    import omnigraph as og

    with og.init("./team.omni", schema="node Person { handle: String @key }") as graph:
        graph.branches.create("draft")

`init` creates a graph and `open` opens one; both return a `Graph`. Every failure is one of `errors`, and what
needs Spark is in `omnigraph.spark`. `__all__` lists every public name; other modules are internal.
"""

import sys
from importlib import import_module

if sys.platform == "win32":
    # Locks between processes need the kernel's `fcntl`.
    raise ImportError("omnigraph runs on Linux and macOS; on Windows use WSL.")

TYPE_CHECKING = False  # `typing` has it, but takes longer to import than everything here
if TYPE_CHECKING:
    from omnigraph import errors, spark
    from omnigraph.client.aio.batches import AsyncBatches
    from omnigraph.client.aio.compare import AsyncRemoteChangeFeed, AsyncRemoteCommitDiff, AsyncRemoteDiff
    from omnigraph.client.aio.graph import AsyncRemoteGraph, aconnect
    from omnigraph.client.aio.history import AsyncRemoteBranches, AsyncRemoteCommits, AsyncRemoteTags
    from omnigraph.client.aio.snapshot import AsyncBlob, AsyncRemoteSnapshot
    from omnigraph.client.aio.write_block import AsyncRemoteWriteBlock
    from omnigraph.client.changes import ChangeFilterOptions, ChangePageOptions, DiffMoment, DiffOptions
    from omnigraph.client.compare import RemoteChangeFeed, RemoteCommitDiff, RemoteDiff
    from omnigraph.client.exports import Baseline
    from omnigraph.client.feed_pages import RemoteCommitChanges
    from omnigraph.client.graph import RemoteGraph, connect
    from omnigraph.client.history import RemoteBranches, RemoteCommits, RemoteTags
    from omnigraph.client.loads import RemoteLoadOptions
    from omnigraph.client.reads import LogOptions, MomentOptions, QueryOptions
    from omnigraph.client.snapshot import RemoteSnapshot
    from omnigraph.client.statements import WriteOptions
    from omnigraph.client.write_block import RemoteWriteBlock
    from omnigraph.client.writes import MutateOptions, TagOptions
    from omnigraph.diagnostics import Diagnostic
    from omnigraph.embed.settings import EmbedProvider, EmbedSettings
    from omnigraph.engine.changes.change import Change, ChangeCounts, ChangeOperation, EntityImage
    from omnigraph.engine.changes.diff import Diff
    from omnigraph.engine.changes.entity_history import EntityChange, EntityHistory, PropertyChange
    from omnigraph.engine.changes.feed import ChangeFeed, CommitChanges
    from omnigraph.engine.changes.log import LogEntry
    from omnigraph.engine.changes.page import ChangeBlock, ChangePage, CommitPage
    from omnigraph.engine.commit.recovery.drift import DriftKind
    from omnigraph.engine.copying.copier import CopyResult
    from omnigraph.engine.embedding.embed_job import RejectedText
    from omnigraph.engine.embedding.result import EmbedOptions, EmbedResult, FilledProperty
    from omnigraph.engine.export.export_request import (
        BinaryStream,
        ExportedType,
        ExportFormat,
        ExportFormatName,
        ExportOutput,
        ExportResult,
    )
    from omnigraph.engine.graph.layout import EntityKind
    from omnigraph.engine.graph.lineage import Commit
    from omnigraph.engine.graph.tags import Tag
    from omnigraph.engine.load.request import EngineReport, LoadResult, StageReport
    from omnigraph.engine.maintenance.cleanup.old_versions import CleanedTable
    from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
    from omnigraph.engine.maintenance.cleanup.run_cleanup import CleanupResult
    from omnigraph.engine.maintenance.cleanup.stray_forks import StrayFork
    from omnigraph.engine.maintenance.cleanup.unneeded_tables import DroppedTable
    from omnigraph.engine.maintenance.ensure_indexes import IndexResult
    from omnigraph.engine.maintenance.optimize import OptimizedTable, OptimizeResult, TableSize
    from omnigraph.engine.maintenance.repair import RepairAction, RepairedTable, RepairResult
    from omnigraph.engine.merge.choices import (
        ChosenValue,
        EntityChoice,
        MergeChoices,
        MergeGranularity,
        MergeSide,
        TypeChoice,
    )
    from omnigraph.engine.merge.conflict import ConflictKey, ConflictKind, DroppedValues, MergeConflict
    from omnigraph.engine.merge.merge import MergeOptions
    from omnigraph.engine.merge.merge_inputs import MergeOutcome
    from omnigraph.engine.merge.replay import ReplayOptions
    from omnigraph.engine.merge.resolutions import ResolutionsInput
    from omnigraph.engine.merge.result import MergePreview, MergeResult
    from omnigraph.engine.merge.table_merge import BranchChanges
    from omnigraph.engine.rows.blobs import Blob
    from omnigraph.engine.rows.violations import Violation
    from omnigraph.engine.schema_apply.apply import SchemaResult
    from omnigraph.engine.tasks.runner import EngineName, TaskMetrics
    from omnigraph.engine.upkeep.declared_indexes import PendingIndexes
    from omnigraph.engine.write.builder import WriteBlock
    from omnigraph.engine.write.mutate import MutationResult, WriteCounts
    from omnigraph.frames import from_frames, infer_schema
    from omnigraph.graph import GranularityName, Graph, LoadMode, MergeStrategy, init, open  # noqa: A004
    from omnigraph.history import Branches, BranchStatus, CommitDetails, Commits, GraphStatus, Tags
    from omnigraph.lang.query.statements import Condition, PropertyValues
    from omnigraph.lang.schema.catalog import (
        Annotation,
        Cardinality,
        Catalog,
        CheckRule,
        EdgeType,
        EmbedSource,
        Interface,
        Language,
        Metric,
        NodeType,
        Property,
        PropertyIndex,
        RangeRule,
        SchemaRenames,
        TypeKind,
        UniqueRule,
    )
    from omnigraph.lang.schema.migration_steps import (
        AddConstraint,
        AddProperty,
        AddType,
        ChangeCardinality,
        ChangeDefault,
        ChangeLanguage,
        ChangeMerge,
        ChangeMetric,
        DropMode,
        DropProperty,
        DropType,
        ExtendEnum,
        MigrationPlan,
        MigrationStep,
        RenameProperty,
        RenameType,
        RequireProperty,
        UnsupportedChange,
        UpdatePropertyMetadata,
        UpdateTypeMetadata,
        WidenProperty,
    )
    from omnigraph.lang.types import Scalar, ValueType
    from omnigraph.lang.values import Json
    from omnigraph.notebook.draw import DrawInput, DrawOptions
    from omnigraph.notebook.picture import Picture
    from omnigraph.notebook.selection import NodeNames
    from omnigraph.policy.policy import Policy, PolicyDecision
    from omnigraph.progress import Progress, ProgressEvent, ProgressListener, progress_to
    from omnigraph.query.algorithms.algorithm_request import (
        AlgorithmOptions,
        AlgorithmResult,
        TypeNames,
        WrittenProperty,
    )
    from omnigraph.query.algorithms.calls import Algorithms
    from omnigraph.query.algorithms.edge_block import WalkDirection
    from omnigraph.query.arrow_tables import EntityDataset
    from omnigraph.query.request import Explanation, QueryStep
    from omnigraph.query.result import Result, Row
    from omnigraph.query.sql import SqlParams
    from omnigraph.snapshot import QueryEngine, Snapshot, TableInfo
    from omnigraph.storage.indexes import RefusedIndex

__version__ = "0.2.0"

__all__ = [
    "AddConstraint",
    "AddProperty",
    "AddType",
    "AlgorithmOptions",
    "AlgorithmResult",
    "Algorithms",
    "Annotation",
    "AsyncBatches",
    "AsyncBlob",
    "AsyncRemoteBranches",
    "AsyncRemoteChangeFeed",
    "AsyncRemoteCommitDiff",
    "AsyncRemoteCommits",
    "AsyncRemoteDiff",
    "AsyncRemoteGraph",
    "AsyncRemoteSnapshot",
    "AsyncRemoteTags",
    "AsyncRemoteWriteBlock",
    "Baseline",
    "BinaryStream",
    "Blob",
    "BranchChanges",
    "BranchStatus",
    "Branches",
    "Cardinality",
    "Catalog",
    "Change",
    "ChangeBlock",
    "ChangeCardinality",
    "ChangeCounts",
    "ChangeDefault",
    "ChangeFeed",
    "ChangeFilterOptions",
    "ChangeLanguage",
    "ChangeMerge",
    "ChangeMetric",
    "ChangeOperation",
    "ChangePage",
    "ChangePageOptions",
    "CheckRule",
    "ChosenValue",
    "CleanedTable",
    "CleanupPolicy",
    "CleanupResult",
    "Commit",
    "CommitChanges",
    "CommitDetails",
    "CommitPage",
    "Commits",
    "Condition",
    "ConflictKey",
    "ConflictKind",
    "CopyResult",
    "Diagnostic",
    "Diff",
    "DiffMoment",
    "DiffOptions",
    "DrawInput",
    "DrawOptions",
    "DriftKind",
    "DropMode",
    "DropProperty",
    "DropType",
    "DroppedTable",
    "DroppedValues",
    "EdgeType",
    "EmbedOptions",
    "EmbedProvider",
    "EmbedResult",
    "EmbedSettings",
    "EmbedSource",
    "EngineName",
    "EngineReport",
    "EntityChange",
    "EntityChoice",
    "EntityDataset",
    "EntityHistory",
    "EntityImage",
    "EntityKind",
    "Explanation",
    "ExportFormat",
    "ExportFormatName",
    "ExportOutput",
    "ExportResult",
    "ExportedType",
    "ExtendEnum",
    "FilledProperty",
    "GranularityName",
    "Graph",
    "GraphStatus",
    "IndexResult",
    "Interface",
    "Json",
    "Language",
    "LoadMode",
    "LoadResult",
    "LogEntry",
    "LogOptions",
    "MergeChoices",
    "MergeConflict",
    "MergeGranularity",
    "MergeOptions",
    "MergeOutcome",
    "MergePreview",
    "MergeResult",
    "MergeSide",
    "MergeStrategy",
    "Metric",
    "MigrationPlan",
    "MigrationStep",
    "MomentOptions",
    "MutateOptions",
    "MutationResult",
    "NodeNames",
    "NodeType",
    "OptimizeResult",
    "OptimizedTable",
    "PendingIndexes",
    "Picture",
    "Policy",
    "PolicyDecision",
    "Progress",
    "ProgressEvent",
    "ProgressListener",
    "Property",
    "PropertyChange",
    "PropertyIndex",
    "PropertyValues",
    "QueryEngine",
    "QueryOptions",
    "QueryStep",
    "RangeRule",
    "RefusedIndex",
    "RejectedText",
    "RemoteBranches",
    "RemoteChangeFeed",
    "RemoteCommitChanges",
    "RemoteCommitDiff",
    "RemoteCommits",
    "RemoteDiff",
    "RemoteGraph",
    "RemoteLoadOptions",
    "RemoteSnapshot",
    "RemoteTags",
    "RemoteWriteBlock",
    "RenameProperty",
    "RenameType",
    "RepairAction",
    "RepairResult",
    "RepairedTable",
    "ReplayOptions",
    "RequireProperty",
    "ResolutionsInput",
    "Result",
    "Row",
    "Scalar",
    "SchemaRenames",
    "SchemaResult",
    "Snapshot",
    "SqlParams",
    "StageReport",
    "StrayFork",
    "TableInfo",
    "TableSize",
    "Tag",
    "TagOptions",
    "Tags",
    "TaskMetrics",
    "TypeChoice",
    "TypeKind",
    "TypeNames",
    "UniqueRule",
    "UnsupportedChange",
    "UpdatePropertyMetadata",
    "UpdateTypeMetadata",
    "ValueType",
    "Violation",
    "WalkDirection",
    "WidenProperty",
    "WriteBlock",
    "WriteCounts",
    "WriteOptions",
    "WrittenProperty",
    "__version__",
    "aconnect",
    "connect",
    "errors",
    "from_frames",
    "infer_schema",
    "init",
    "open",
    "progress_to",
    "spark",
]

# Every public name with its module, by the themes of docs/reference.md. A module is imported when one of its
# names is first used, so that `import omnigraph` loads neither Lance nor Arrow.
THEMES: dict[str, dict[str, tuple[str, ...]]] = {
    "Graphs": {
        "omnigraph.graph": ("init", "open", "Graph"),
        "omnigraph.frames": ("from_frames", "infer_schema"),
        "omnigraph.history": ("Branches", "Tags", "Commits", "CommitDetails", "GraphStatus", "BranchStatus"),
        "omnigraph.engine.graph.lineage": ("Commit",),
        "omnigraph.engine.graph.tags": ("Tag",),
        "omnigraph.snapshot": ("Snapshot", "TableInfo"),
    },
    "Graphs behind a server": {
        "omnigraph.client.graph": ("connect", "RemoteGraph"),
        "omnigraph.client.history": ("RemoteBranches", "RemoteCommits", "RemoteTags"),
        "omnigraph.client.snapshot": ("RemoteSnapshot",),
        "omnigraph.client.write_block": ("RemoteWriteBlock",),
        "omnigraph.client.compare": ("RemoteDiff", "RemoteCommitDiff", "RemoteChangeFeed"),
        "omnigraph.client.feed_pages": ("RemoteCommitChanges",),
        "omnigraph.client.changes": ("DiffMoment",),
        "omnigraph.client.exports": ("Baseline",),
    },
    "Graphs behind a server, for asyncio": {
        "omnigraph.client.aio.graph": ("aconnect", "AsyncRemoteGraph"),
        "omnigraph.client.aio.history": ("AsyncRemoteBranches", "AsyncRemoteCommits", "AsyncRemoteTags"),
        "omnigraph.client.aio.snapshot": ("AsyncRemoteSnapshot", "AsyncBlob"),
        "omnigraph.client.aio.write_block": ("AsyncRemoteWriteBlock",),
        "omnigraph.client.aio.batches": ("AsyncBatches",),
        "omnigraph.client.aio.compare": (
            "AsyncRemoteDiff",
            "AsyncRemoteCommitDiff",
            "AsyncRemoteChangeFeed",
        ),
        "omnigraph.client.reads": ("MomentOptions", "QueryOptions", "LogOptions"),
        "omnigraph.client.writes": ("MutateOptions", "TagOptions"),
        "omnigraph.client.statements": ("WriteOptions",),
        "omnigraph.client.loads": ("RemoteLoadOptions",),
        "omnigraph.client.changes": ("ChangeFilterOptions", "ChangePageOptions", "DiffOptions"),
    },
    "Schemas": {
        "omnigraph.lang.schema.catalog": (
            "Catalog",
            "Language",
            "Metric",
            "NodeType",
            "EdgeType",
            "Interface",
            "Property",
            "TypeKind",
            "Annotation",
            "Cardinality",
            "CheckRule",
            "RangeRule",
            "UniqueRule",
            "PropertyIndex",
            "EmbedSource",
            "SchemaRenames",
        ),
        "omnigraph.lang.types": ("ValueType", "Scalar"),
        "omnigraph.engine.graph.layout": ("EntityKind",),
    },
    "Schema changes": {
        "omnigraph.lang.schema.migration_steps": (
            "MigrationPlan",
            "MigrationStep",
            "AddType",
            "AddProperty",
            "AddConstraint",
            "ChangeCardinality",
            "ChangeDefault",
            "ChangeLanguage",
            "ChangeMerge",
            "ChangeMetric",
            "DropMode",
            "DropProperty",
            "DropType",
            "ExtendEnum",
            "RenameProperty",
            "RenameType",
            "RequireProperty",
            "UnsupportedChange",
            "UpdatePropertyMetadata",
            "UpdateTypeMetadata",
            "WidenProperty",
        ),
        "omnigraph.engine.schema_apply.apply": ("SchemaResult",),
    },
    "Queries": {
        "omnigraph.query.result": ("Result", "Row"),
        "omnigraph.lang.values": ("Json",),
        "omnigraph.snapshot": ("QueryEngine",),
        "omnigraph.query.request": ("Explanation", "QueryStep"),
        "omnigraph.query.arrow_tables": ("EntityDataset",),
        "omnigraph.query.sql": ("SqlParams",),
    },
    "Writes": {
        "omnigraph.engine.write.builder": ("WriteBlock",),
        "omnigraph.lang.query.statements": ("Condition", "PropertyValues"),
        "omnigraph.engine.write.mutate": ("MutationResult", "WriteCounts"),
    },
    "Loads": {
        "omnigraph.graph": ("LoadMode",),
        "omnigraph.engine.load.request": ("LoadResult", "EngineReport", "StageReport"),
        "omnigraph.engine.rows.violations": ("Violation",),
        "omnigraph.engine.tasks.runner": ("EngineName",),
        "omnigraph.engine.upkeep.declared_indexes": ("PendingIndexes",),
    },
    "Exports and Blobs": {
        "omnigraph.engine.export.export_request": (
            "ExportResult",
            "ExportedType",
            "ExportFormat",
            "ExportFormatName",
            "ExportOutput",
            "BinaryStream",
        ),
        "omnigraph.engine.rows.blobs": ("Blob",),
    },
    "Embeddings": {
        "omnigraph.engine.embedding.result": ("EmbedOptions", "EmbedResult", "FilledProperty"),
        "omnigraph.embed.settings": ("EmbedProvider", "EmbedSettings"),
        "omnigraph.engine.embedding.embed_job": ("RejectedText",),
    },
    "Changes": {
        "omnigraph.engine.changes.diff": ("Diff",),
        "omnigraph.engine.changes.change": ("Change", "ChangeOperation", "ChangeCounts", "EntityImage"),
        "omnigraph.engine.changes.feed": ("ChangeFeed", "CommitChanges"),
        "omnigraph.engine.changes.entity_history": ("EntityChange", "EntityHistory", "PropertyChange"),
        "omnigraph.engine.changes.log": ("LogEntry",),
        "omnigraph.engine.changes.page": ("ChangePage", "ChangeBlock", "CommitPage"),
    },
    "Merges": {
        "omnigraph.engine.merge.merge": ("MergeOptions",),
        "omnigraph.engine.merge.result": ("MergeResult", "MergePreview"),
        "omnigraph.engine.merge.table_merge": ("BranchChanges",),
        "omnigraph.engine.merge.merge_inputs": ("MergeOutcome",),
        "omnigraph.engine.merge.conflict": ("MergeConflict", "ConflictKind", "ConflictKey", "DroppedValues"),
        "omnigraph.graph": ("MergeStrategy", "GranularityName"),
        "omnigraph.engine.merge.choices": (
            "MergeGranularity",
            "MergeChoices",
            "TypeChoice",
            "EntityChoice",
            "ChosenValue",
            "MergeSide",
        ),
        "omnigraph.engine.merge.replay": ("ReplayOptions",),
        "omnigraph.engine.merge.resolutions": ("ResolutionsInput",),
    },
    "Algorithms": {
        "omnigraph.query.algorithms.calls": ("Algorithms",),
        "omnigraph.query.algorithms.algorithm_request": (
            "AlgorithmOptions",
            "AlgorithmResult",
            "WrittenProperty",
            "TypeNames",
        ),
        "omnigraph.query.algorithms.edge_block": ("WalkDirection",),
    },
    "Pictures": {
        "omnigraph.notebook.picture": ("Picture",),
        "omnigraph.notebook.draw": ("DrawInput", "DrawOptions"),
        "omnigraph.notebook.selection": ("NodeNames",),
    },
    "Maintenance": {
        "omnigraph.engine.maintenance.ensure_indexes": ("IndexResult",),
        "omnigraph.storage.indexes": ("RefusedIndex",),
        "omnigraph.engine.tasks.runner": ("TaskMetrics",),
        "omnigraph.engine.maintenance.optimize": ("OptimizeResult", "OptimizedTable", "TableSize"),
        "omnigraph.engine.maintenance.cleanup.policy": ("CleanupPolicy",),
        "omnigraph.engine.maintenance.cleanup.run_cleanup": ("CleanupResult",),
        "omnigraph.engine.maintenance.cleanup.old_versions": ("CleanedTable",),
        "omnigraph.engine.maintenance.cleanup.unneeded_tables": ("DroppedTable",),
        "omnigraph.engine.maintenance.cleanup.stray_forks": ("StrayFork",),
        "omnigraph.engine.maintenance.repair": ("RepairResult", "RepairedTable", "RepairAction"),
        "omnigraph.engine.commit.recovery.drift": ("DriftKind",),
        "omnigraph.engine.copying.copier": ("CopyResult",),
    },
    "Policy": {
        "omnigraph.policy.policy": ("Policy", "PolicyDecision"),
    },
    "Progress": {
        "omnigraph.progress": ("progress_to", "Progress", "ProgressEvent", "ProgressListener"),
    },
    "Errors": {
        "omnigraph.diagnostics": ("Diagnostic",),
    },
}

_MODULES = ("errors", "spark")
_HOMES = {name: home for homes in THEMES.values() for home, names in homes.items() for name in names}

# Hidden from type checkers, which would take it to mean that every name exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"omnigraph.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'omnigraph' has no attribute '{name}'")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
