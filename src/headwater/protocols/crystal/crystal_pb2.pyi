from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MessageDirection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NONE: _ClassVar[MessageDirection]
    INCOMING: _ClassVar[MessageDirection]
    OUTGOING: _ClassVar[MessageDirection]
    ALL: _ClassVar[MessageDirection]

class Error(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[Error]
    AUTHENTICATED: _ClassVar[Error]
    NAME_EXISTS: _ClassVar[Error]
    UNAUTHENTICATED: _ClassVar[Error]
    UNREGISTERED_CHANNEL: _ClassVar[Error]
    INTERNAL: _ClassVar[Error]
NONE: MessageDirection
INCOMING: MessageDirection
OUTGOING: MessageDirection
ALL: MessageDirection
UNKNOWN: Error
AUTHENTICATED: Error
NAME_EXISTS: Error
UNAUTHENTICATED: Error
UNREGISTERED_CHANNEL: Error
INTERNAL: Error

class NamespacedName(_message.Message):
    __slots__ = ("namespace", "name")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class Channel(_message.Message):
    __slots__ = ("id", "direction")
    ID_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    id: NamespacedName
    direction: MessageDirection
    def __init__(self, id: _Optional[_Union[NamespacedName, _Mapping]] = ..., direction: _Optional[_Union[MessageDirection, str]] = ...) -> None: ...

class Authenticate(_message.Message):
    __slots__ = ("client_id", "client_name", "secret_key", "channels")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAME_FIELD_NUMBER: _ClassVar[int]
    SECRET_KEY_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    client_id: NamespacedName
    client_name: str
    secret_key: str
    channels: _containers.RepeatedCompositeFieldContainer[Channel]
    def __init__(self, client_id: _Optional[_Union[NamespacedName, _Mapping]] = ..., client_name: _Optional[str] = ..., secret_key: _Optional[str] = ..., channels: _Optional[_Iterable[_Union[Channel, _Mapping]]] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("channel", "payload")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    channel: NamespacedName
    payload: str
    def __init__(self, channel: _Optional[_Union[NamespacedName, _Mapping]] = ..., payload: _Optional[str] = ...) -> None: ...

class Successful(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Result(_message.Message):
    __slots__ = ("successful", "error")
    SUCCESSFUL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    successful: Successful
    error: Error
    def __init__(self, successful: _Optional[_Union[Successful, _Mapping]] = ..., error: _Optional[_Union[Error, str]] = ...) -> None: ...

class Forward(_message.Message):
    __slots__ = ("publisher", "channel", "payload")
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    publisher: str
    channel: NamespacedName
    payload: str
    def __init__(self, publisher: _Optional[str] = ..., channel: _Optional[_Union[NamespacedName, _Mapping]] = ..., payload: _Optional[str] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ("channel", "payload", "secret_key", "channels")
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SECRET_KEY_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    channel: NamespacedName
    payload: str
    secret_key: bytes
    channels: bytes
    def __init__(self, channel: _Optional[_Union[NamespacedName, _Mapping]] = ..., payload: _Optional[str] = ..., secret_key: _Optional[bytes] = ..., channels: _Optional[bytes] = ...) -> None: ...
