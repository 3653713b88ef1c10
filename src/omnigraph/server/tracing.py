"""Traces of requests for OpenTelemetry: off unless asked for, and nothing is imported until then.

A span names operations, phases, graphs, actors and codes of errors. It never has a header, a body, a query or
the text of an error, so nothing of a token can be in it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from omnigraph.errors import BadRequest, MissingExtra, OmnigraphError

TRACES = "OMNIGRAPH_TRACES"
"""The setting for where traces go: `otlp`, to the collector at OTEL_EXPORTER_OTLP_ENDPOINT, or `none`."""

PARENT = "traceparent"

_NAME = "omnigraph"


def open_tracing(environment: Mapping[str, str] = os.environ) -> Tracing | None:
    """Return where traces go; None when they are off."""
    chosen = environment.get(TRACES, "").strip().lower()
    if chosen in ("", "none"):
        return None
    if chosen != "otlp":
        raise BadRequest(f"{TRACES} must be otlp or none, got '{chosen}'")
    try:
        exporters: Any = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        export: Any = import_module("opentelemetry.sdk.trace.export")
    except ModuleNotFoundError as missing:
        raise MissingExtra(TRACES, package="opentelemetry", extra="otel") from missing
    return Tracing(export.BatchSpanProcessor(exporters.OTLPSpanExporter()))


class Tracing:
    """Makes spans of requests, and hands them to a processor of the SDK."""

    def __init__(self, processor: Any) -> None:
        sdk: Any = import_module("opentelemetry.sdk.trace")
        resources: Any = import_module("opentelemetry.sdk.resources")
        # Attributes of the environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) come before ours.
        own = resources.Resource({"service.name": _NAME})
        found = resources.OTELResourceDetector().detect()
        self._provider = sdk.TracerProvider(resource=own.merge(found), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(_NAME)
        self._api: Any = import_module("opentelemetry.trace")
        propagation: Any = import_module("opentelemetry.trace.propagation.tracecontext")
        self._propagator = propagation.TraceContextTextMapPropagator()

    def begin_request(self, headers: Mapping[str, str]) -> RequestSpan:
        """Begin the span of a request, below that of the client if the request names one."""
        context = self._propagator.extract({PARENT: headers[PARENT]} if PARENT in headers else {})
        span = self._tracer.start_span("request", context=context, kind=self._api.SpanKind.SERVER)
        return RequestSpan(self._api, self._tracer, span)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class RequestSpan:
    """The span of one request, and those of its phases below it."""

    def __init__(self, api: Any, tracer: Any, span: Any) -> None:
        self._api, self._tracer = api, tracer
        self._open = [span]
        """The phases that have begun and not ended, outermost first, below the request itself."""

    def begin_phase(self, name: str) -> Any:
        """Begin a span in the one that began last."""
        context = self._api.set_span_in_context(self._open[-1])
        span = self._tracer.start_span(name, context=context)
        self._open.append(span)
        return span

    def end_phase(self, span: Any, error: BaseException | None) -> None:
        """End a span; of a failure it has the code, since the text may repeat what the caller sent."""
        if span in self._open:
            self._open.remove(span)
        if error is not None:
            span.set_attribute("error.type", _kind_of(error))
            span.set_status(self._api.StatusCode.ERROR)
        span.end()

    def end(self, operation: str, facts: Mapping[str, Any], *, failed: bool) -> None:
        """End the span of the request, with what is known about it by now."""
        span = self._open[0]
        span.update_name(operation)
        span.set_attributes({name: value for name, value in facts.items() if value is not None})
        if failed:
            span.set_status(self._api.StatusCode.ERROR)
        span.end()


def _kind_of(error: BaseException) -> str:
    return error.code if isinstance(error, OmnigraphError) else type(error).__name__
