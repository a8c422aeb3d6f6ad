"""Delivers a notice to a target: the mail system, or the webhook."""

from collections.abc import Iterable
from typing import Final, Literal

from advisor.backends.mail_and_webhook import post, send_mail, webhook_url
from advisor.backends.process import Deadline
from advisor.domain.notice import Notice, NoticeSettings
from advisor.errors import NoticeError
from advisor.view.notice_documents import mail_of, webhook_document

Target = Literal["mail", "webhook"]
MAIL: Final = "mail"
WEBHOOK: Final = "webhook"


def targets_of(notice: Notice, settings: NoticeSettings) -> Iterable[Target]:
    """Yield the targets of a notice; one to a user goes to that user by mail and nowhere else."""
    if notice.user or settings.recipients:
        yield MAIL
    if settings.webhook and not notice.user:
        yield WEBHOOK


def deliver(notice: Notice, target: Target, settings: NoticeSettings, patience: Deadline | None = None) -> None:
    """Deliver a notice to one target; raises `NoticeError`."""
    if target == WEBHOOK:
        url = webhook_url(settings.webhook)
        if not url:
            raise NoticeError("webhook: notify.webhook is empty now")
        post(url, webhook_document(notice), timeout_s=settings.timeout_s, patience=patience)
        return
    recipients = mail_recipients(notice, settings)
    mail = mail_of(notice, recipients, sender=settings.mail_from)
    send_mail(
        settings.sendmail,
        mail,
        recipients,
        sender=settings.mail_from,
        timeout_s=settings.timeout_s,
        patience=patience,
    )


def mail_recipients(notice: Notice, settings: NoticeSettings) -> tuple[str, ...]:
    """Return the addresses that a mail goes to; raises `NoticeError` where there are none."""
    if not notice.user:
        addresses = settings.recipients
    else:
        address = settings.address_of_user(notice.user) if settings.reaches_users else None
        addresses = () if address is None else (address,)
    if not addresses:
        raise NoticeError("mail: notify.mail_to and notify.users give no recipient now")
    return addresses
