"""Every error omnigraph raises, in one tree.

    OmnigraphError
    ├── CompileError                  text of a schema or query is wrong; carries positions
    │   ├── ParseError
    │   ├── CatalogError
    │   └── TypeCheckError
    ├── SchemaIdentityError           a migration hint names something that is not there
    ├── BadRequest                    the request cannot be carried out as asked
    │   ├── ParameterError, InvalidValue, InvalidName, ConstraintViolation, LoadRejected
    │   ├── UnsupportedSchemaChange, SchemaDataViolation, WrongQueryKind, WrongUsage, QueryError, MissingExtra
    │   ├── SqlError, GraphClosed, ReadOnlyGraph, ChangeCursorRejected, YamlInvalid
    │   ├── UnsupportedMediaType, ClusterUnreadable, NoHealthyGraphs
    │   ├── EmbeddingNotConfigured, EmbeddingModelMismatch, EmbeddingTextRejected, PolicyInvalid
    │   ├── JavaNotFound, SparkSessionActive, PipelineDuplicateKey
    │   └── PipelineInvalid           a pipeline file is wrong; carries positions
    │       ├── FuturePhaseField, PipelineSourceAmbiguous, PipelineSourceKindUnsupported
    │       ├── SourceSecretInline, SourceSecretMissing, PipelineFileMissing, PipelineTargetMissing
    │       ├── PipelineTypeUnknown, PipelinePropertyUnknown, PipelinePropertyType, PipelineKeyUnmapped
    │       ├── PipelineRequiredUnmapped, PipelineEndpointType, PipelineViewUnknown
    │       ├── PipelineSqlInvalid, PipelineColumnUnresolved, PipelineExpressionRefused
    │       └── PipelineSchemaDrift
    ├── Unauthorized, PolicyDenied, TooManyRequests, QueryCancelled, PipelineCancelled
    ├── MethodNotAllowed, RequestTimeout
    ├── NotFound
    │   ├── GraphNotFound, BranchNotFound, TagNotFound, CommitNotFound, VersionNotFound, GraphNotApplied
    │   └── QueryNotFound, EntityNotFound, PipelineRunNotFound, PipelineNotApplied
    ├── Conflict                      someone else changed what this operation relied on
    │   ├── AlreadyInitialized, PlaceNotEmpty, InitializationClaimed
    │   ├── BranchExists, TagExists, BranchInUse, SchemaApplyBlocked, SchemaContractBroken
    │   ├── TableVersionConflict, TableDrift, ReadSetChanged, PublishContention, Decided
    │   ├── MergeConflicts, NoCommonCommit, StaleResolutions
    │   ├── KeyConflict, ChangeDiffRefused, ManagedByCluster
    │   └── PipelineRunInProgress, PipelineRunLost, PipelineDefinitionMoved, PipelineMovedToCluster,
    │       PipelineRecordsMissing, PipelineTargetReplaced, StreamSinkTaken
    ├── ChangeFeedGap
    ├── HistoricalVersionReclaimed    the snapshot is known, its data was cleaned up
    ├── PreconditionFailed, ResourceLimitExceeded, UnsatisfiableRange, ExternalBlobUnavailable
    ├── Unavailable                   try again, or heal first
    │   ├── RecoveryRequired, ServerUnreachable
    │   ├── WriterBusy, LockLost
    │   └── EmbeddingUnavailable, SparkUnavailable
    ├── EmbeddingFailed               an embedding provider refused or answered nonsense
    │   └── EmbeddingKeyRejected, EmbeddingAnswerRejected, EmbeddingDimensionMismatch
    └── InternalError                 the store or an invariant failed
        ├── StorageFailure, PolicyFailed
        ├── UnsupportedFormat, CorruptGraph, CopyNotVerified
        ├── PipelineFailed            a task of the data pipeline failed
        │   └── PipelineWorkerLost
        └── InitializationCommitted, InitializationIndeterminate, PipelineCheckpointInvariant,
            PipelineRecordInvalid

Each class has a stable `code`, the HTTP `status` a server answers with and whether a plain retry
can help (`retryable`). Each instance has a one-sentence `message` in the user's own names, a
`remedy` when there is something to do, and its data as attributes, collected by `data()`.
"""

from __future__ import annotations

from omnigraph.errors.base import (
    OmnigraphError,
)
from omnigraph.errors.cluster import (
    ClusterUnreadable,
    GraphNotApplied,
    ManagedByCluster,
    NoHealthyGraphs,
)
from omnigraph.errors.conflict import (
    AlreadyInitialized,
    BranchExists,
    BranchInUse,
    ChangeDiffRefused,
    Conflict,
    Decided,
    InitializationClaimed,
    KeyConflict,
    MergeConflicts,
    NoCommonCommit,
    PlaceNotEmpty,
    PublishContention,
    ReadSetChanged,
    SchemaApplyBlocked,
    SchemaContractBroken,
    StaleResolutions,
    TableDrift,
    TableVersionConflict,
    TagExists,
)
from omnigraph.errors.embedding import (
    EmbeddingAnswerRejected,
    EmbeddingDimensionMismatch,
    EmbeddingFailed,
    EmbeddingKeyRejected,
    EmbeddingModelMismatch,
    EmbeddingNotConfigured,
    EmbeddingTextRejected,
    EmbeddingUnavailable,
)
from omnigraph.errors.internal import (
    CopyNotVerified,
    CorruptGraph,
    InitializationCommitted,
    InitializationIndeterminate,
    InternalError,
    StorageFailure,
    UnsupportedFormat,
)
from omnigraph.errors.language import (
    CatalogError,
    CompileError,
    ParseError,
    SchemaIdentityError,
    TypeCheckError,
)
from omnigraph.errors.pipelines import (
    FuturePhaseField,
    PipelineCheckpointInvariant,
    PipelineColumnUnresolved,
    PipelineDefinitionMoved,
    PipelineDuplicateKey,
    PipelineEndpointType,
    PipelineExpressionRefused,
    PipelineFileMissing,
    PipelineInvalid,
    PipelineKeyUnmapped,
    PipelineMovedToCluster,
    PipelineNotApplied,
    PipelinePropertyType,
    PipelinePropertyUnknown,
    PipelineRecordInvalid,
    PipelineRecordsMissing,
    PipelineRequiredUnmapped,
    PipelineRunInProgress,
    PipelineRunLost,
    PipelineRunNotFound,
    PipelineSchemaDrift,
    PipelineSourceAmbiguous,
    PipelineSourceKindUnsupported,
    PipelineSqlInvalid,
    PipelineTargetMissing,
    PipelineTargetReplaced,
    PipelineTypeUnknown,
    PipelineViewUnknown,
    SourceSecretInline,
    SourceSecretMissing,
)
from omnigraph.errors.policy import (
    PolicyFailed,
    PolicyInvalid,
)
from omnigraph.errors.request import (
    BadRequest,
    BranchNotFound,
    ChangeCursorRejected,
    CommitNotFound,
    ConstraintViolation,
    EntityNotFound,
    GraphClosed,
    GraphNotFound,
    InvalidName,
    InvalidValue,
    LoadRejected,
    MethodNotAllowed,
    MissingExtra,
    NotFound,
    ParameterError,
    PolicyDenied,
    QueryCancelled,
    QueryError,
    QueryNotFound,
    ReadOnlyGraph,
    RequestTimeout,
    SchemaDataViolation,
    SqlError,
    TagNotFound,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
    UnsupportedSchemaChange,
    VersionNotFound,
    WrongQueryKind,
    WrongUsage,
    YamlInvalid,
)
from omnigraph.errors.spark import (
    JavaNotFound,
    PipelineCancelled,
    PipelineFailed,
    PipelineWorkerLost,
    SparkSessionActive,
    SparkUnavailable,
)
from omnigraph.errors.streaming import StreamSinkTaken
from omnigraph.errors.unavailable import (
    ChangeFeedGap,
    ExternalBlobUnavailable,
    HistoricalVersionReclaimed,
    LockLost,
    PreconditionFailed,
    RecoveryRequired,
    ResourceLimitExceeded,
    ServerUnreachable,
    Unavailable,
    UnsatisfiableRange,
    WriterBusy,
)

__all__ = [
    "AlreadyInitialized",
    "BadRequest",
    "BranchExists",
    "BranchInUse",
    "BranchNotFound",
    "CatalogError",
    "ChangeCursorRejected",
    "ChangeDiffRefused",
    "ChangeFeedGap",
    "ClusterUnreadable",
    "CommitNotFound",
    "CompileError",
    "Conflict",
    "ConstraintViolation",
    "CopyNotVerified",
    "CorruptGraph",
    "Decided",
    "EmbeddingAnswerRejected",
    "EmbeddingDimensionMismatch",
    "EmbeddingFailed",
    "EmbeddingKeyRejected",
    "EmbeddingModelMismatch",
    "EmbeddingNotConfigured",
    "EmbeddingTextRejected",
    "EmbeddingUnavailable",
    "EntityNotFound",
    "ExternalBlobUnavailable",
    "FuturePhaseField",
    "GraphClosed",
    "GraphNotApplied",
    "GraphNotFound",
    "HistoricalVersionReclaimed",
    "InitializationClaimed",
    "InitializationCommitted",
    "InitializationIndeterminate",
    "InternalError",
    "InvalidName",
    "InvalidValue",
    "JavaNotFound",
    "KeyConflict",
    "LoadRejected",
    "LockLost",
    "ManagedByCluster",
    "MergeConflicts",
    "MethodNotAllowed",
    "MissingExtra",
    "NoCommonCommit",
    "NoHealthyGraphs",
    "NotFound",
    "OmnigraphError",
    "ParameterError",
    "ParseError",
    "PipelineCancelled",
    "PipelineCheckpointInvariant",
    "PipelineColumnUnresolved",
    "PipelineDefinitionMoved",
    "PipelineDuplicateKey",
    "PipelineEndpointType",
    "PipelineExpressionRefused",
    "PipelineFailed",
    "PipelineFileMissing",
    "PipelineInvalid",
    "PipelineKeyUnmapped",
    "PipelineMovedToCluster",
    "PipelineNotApplied",
    "PipelinePropertyType",
    "PipelinePropertyUnknown",
    "PipelineRecordInvalid",
    "PipelineRecordsMissing",
    "PipelineRequiredUnmapped",
    "PipelineRunInProgress",
    "PipelineRunLost",
    "PipelineRunNotFound",
    "PipelineSchemaDrift",
    "PipelineSourceAmbiguous",
    "PipelineSourceKindUnsupported",
    "PipelineSqlInvalid",
    "PipelineTargetMissing",
    "PipelineTargetReplaced",
    "PipelineTypeUnknown",
    "PipelineViewUnknown",
    "PipelineWorkerLost",
    "PlaceNotEmpty",
    "PolicyDenied",
    "PolicyFailed",
    "PolicyInvalid",
    "PreconditionFailed",
    "PublishContention",
    "QueryCancelled",
    "QueryError",
    "QueryNotFound",
    "ReadOnlyGraph",
    "ReadSetChanged",
    "RecoveryRequired",
    "RequestTimeout",
    "ResourceLimitExceeded",
    "SchemaApplyBlocked",
    "SchemaContractBroken",
    "SchemaDataViolation",
    "SchemaIdentityError",
    "ServerUnreachable",
    "SourceSecretInline",
    "SourceSecretMissing",
    "SparkSessionActive",
    "SparkUnavailable",
    "SqlError",
    "StaleResolutions",
    "StorageFailure",
    "StreamSinkTaken",
    "TableDrift",
    "TableVersionConflict",
    "TagExists",
    "TagNotFound",
    "TooManyRequests",
    "TypeCheckError",
    "Unauthorized",
    "Unavailable",
    "UnsatisfiableRange",
    "UnsupportedFormat",
    "UnsupportedMediaType",
    "UnsupportedSchemaChange",
    "VersionNotFound",
    "WriterBusy",
    "WrongQueryKind",
    "WrongUsage",
    "YamlInvalid",
]

# Users import from here, and tracebacks say so.
for _name in __all__:
    globals()[_name].__module__ = __name__
